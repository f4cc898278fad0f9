"""`jobpool manual`: the pages that come with the package, shown or searched."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from jobpool.cli.flags import json_flag
from jobpool.cli.output import print_json, print_line
from jobpool.core.config.layers import nearest
from jobpool.core.safe_text import one_line
from jobpool.errors import JobpoolError
from jobpool.manual import pages

_WIDTH_MAX = 100
"""In columns; longer lines are hard to read."""
_LESS = "-FRX"
"""Options for less: leave a short page on the screen, show colours."""
_THEME = Theme({"markdown.code": "bold cyan"})
"""Without rich's black background of code, an ugly bar on a light terminal."""
_LINK = re.compile(r"\[([^\]]+)\]\(([\w-]*)(?:\.md)?(?:#[\w-]*)?\)")
_HINT = "jobpool manual TOPIC shows a page; jobpool manual --search WORDS finds lines."


class _LeftHeading(Heading):
    """A left-aligned heading; rich centres it."""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Text):
                part.justify = "left"
            yield part


class _Code(CodeBlock):
    """Code in its own lines; rich wraps them, and what is copied is then broken."""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        code = str(self.text).rstrip()
        widest = max(map(cell_len, code.splitlines()), default=0)
        block = Syntax(code, self.lexer_name, theme=self.theme, padding=(1, 0))
        yield from console.render(
            block, options.update(width=max(options.max_width, widest))
        )


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
    }


@click.command("manual")
@click.argument("words", metavar="[TOPIC]", nargs=-1)
@click.option(
    "--search", is_flag=True, help="Find the lines that contain all these words."
)
@click.option("--file", "name", help="Print a ready-made file, such as roles.sql.")
@json_flag
def manual(
    *, words: Sequence[str], search: bool, name: str | None, as_json: bool
) -> None:
    """Show the manual's list of pages, or the page TOPIC.

    \b
    jobpool manual                       the pages, one line each
    jobpool manual tuning                one page
    jobpool manual --search soft limit   all lines with both words
    jobpool manual --file roles.sql      a file to start from
    """  # noqa: D301 - click wants the character itself
    if name is not None:
        click.echo(_file(name).read_text("utf-8"), nl=False)
    elif search:
        _search(" ".join(words), as_json=as_json)
    elif len(words) > 1:
        raise click.UsageError(
            "name one page, or search for all of these words: jobpool manual --search "
            + one_line(" ".join(words), 60)
        )
    elif words and words != ("index",):
        _show(words[0], as_json=as_json)
    else:
        _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    """Print every page with its summary, by group."""
    if as_json:
        for entry in pages.entries():
            print_json(entry._asdict())
        return
    width = max(len(entry.topic) for entry in pages.entries())
    for group, members in groupby(pages.entries(), lambda entry: entry.group):
        click.secho(group.upper(), bold=True)
        for entry in members:
            click.echo(f"  {entry.topic:<{width}}  {entry.summary}")
        click.echo()
    click.echo(_HINT)


def _show(topic: str, *, as_json: bool) -> None:
    """Print a page: rendered and paged on a terminal, else as Markdown."""
    known = [entry.topic for entry in pages.entries()]
    if topic not in known:
        raise click.UsageError(
            f"the manual has no page {one_line(topic, 60)!r}; {nearest(topic, known)} "
            f"(to search all pages: jobpool manual --search {one_line(topic, 60)})"
        )
    text = pages.text_of(topic)
    if as_json:
        print_json({"topic": topic, "text": text})
    elif sys.stdout.isatty():
        os.environ.setdefault("LESS", _LESS)
        width = min(shutil.get_terminal_size().columns, _WIDTH_MAX)
        click.echo_via_pager(rendered(text, width))
    else:
        click.echo(text, nl=False)


def _file(name: str) -> Path:
    """Return a ready-made file by its name, or by the last part of that.

    Raises:
        UsageError: there is none.
    """
    known = pages.ready_made()
    found = [key for key in known if name in (key, key.rpartition("/")[2])]
    if len(found) != 1:
        raise click.UsageError(
            f"no ready-made file is called {one_line(name, 60)!r}; there are "
            f"{', '.join(known)}"
        )
    return known[found[0]]


def rendered(text: str, width: int) -> str:
    """Return a page as a terminal shows it.

    Args:
        text: Markdown, with links to other pages.
        width: columns.
    """
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, theme=_THEME)
    page = _Page(_LINK.sub(_spoken, text), code_theme="ansi_dark", hyperlinks=False)
    with screen.capture() as capture:
        screen.print(page, crop=False)  # the terminal wraps long lines of code
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _spoken(link: re.Match[str]) -> str:
    """Return a link to a page as the command that shows it."""
    text, topic = link.groups()
    return text if topic in ("", text) else f"{text} (`jobpool manual {topic}`)"


def _search(words: str, *, as_json: bool) -> None:
    """Print each line that contains all words, below its page and heading.

    Raises:
        UsageError: there are no words.
        JobpoolError: no line contains all of them.
    """
    if not words.strip():
        raise click.UsageError(
            "no words to search for; write jobpool manual --search WORDS"
        )
    hits = list(pages.search(words))
    if not hits:
        raise JobpoolError(
            f"no line of the manual contains all of {one_line(words, 60)!r}; try "
            "fewer words, or parts of them"
        )
    if as_json:
        for hit in hits:
            print_json(hit._asdict())
        return
    for (topic, heading), found in groupby(hits, lambda hit: (hit.topic, hit.heading)):
        click.secho(f"{topic}: {heading}", bold=True)
        for hit in found:
            print_line(f"  {hit.number:>4}", hit.line)
