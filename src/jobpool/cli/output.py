"""Printing: one JSON object a line, or tables for people. Data is never markup.

rich is imported by what prints with it: it is a sixth of what a command costs, and most
print lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from jobpool.core.event_lines import iso_time
from jobpool.core.rules.schedules.zone import local_time
from jobpool.core.safe_text import json_text, one_line, whole
from jobpool.store.records.schedules import JobTick
from jobpool.words.schedules import zone_here

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_PIPE_WIDTH = 1000
"""In columns, where the output is not a terminal and nothing wraps."""
_NAME_SHARE = 4
"""A column other than the last gets at most this fraction of a terminal's width, if
not all of them fit."""
_CELL_MAX = 400
"""Characters of a value in a table."""
_LAST_WIDTH_MIN = 30
_COLOURS = {
    "succeeded": "green",
    "retryable": "yellow",
    "leased": "cyan",
    "running": "cyan",
    "ready": "cyan",
    "asks": "yellow",
    "done": "green",
    "failed": "red",
    "dead": "red",
    "quarantined": "bold red",
}


def print_json(value: Any) -> None:
    """Print one object on one line, without control characters."""
    encoded = msgspec.json.encode(value, enc_hook=str, order=None)
    click.echo(json_text(encoded.decode()))


def encodable(value: Any) -> Any:
    """Replace what UTF-8 cannot encode in all texts of a value."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, Mapping):
        return {encodable(key): encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encodable(item) for item in value]
    return value


def console() -> Console:
    """Return a console on stdout that interprets no markup."""
    from rich.console import Console  # noqa: PLC0415 - see above

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False)


def cell(value: Any) -> Text:
    """Return a value as harmless text; None is a dash, a text that is drawn stays."""
    from rich.text import Text  # noqa: PLC0415 - see above

    if isinstance(value, Text):
        return value
    text = "-" if value is None else one_line(str(value), _CELL_MAX)
    return Text(text, style=_COLOURS.get(text, ""))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()
) -> None:
    """Print rows under headings.

    Args:
        columns: the headings.
        rows: values in the order of the headings.
        right: headings whose column is aligned to the right.
    """
    from rich.table import Table  # noqa: PLC0415 - see above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(
            name, justify="right" if name in right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(cell, row))
    _print(console(), table)


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    right: Sequence[str],
    spare: Sequence[str],
) -> None:
    """Print each row on one line, as wide as the terminal.

    The last column gets the width that the others leave, and is cut there. On a
    terminal too narrow for what is in it, other columns are left out in turn.

    Args:
        columns: the headings.
        rows: values in the order of the headings.
        right: headings whose column is aligned to the right.
        spare: headings of columns to leave out, in that order.
    """
    from rich.table import Table  # noqa: PLC0415 - see above

    screen = console()
    cells = [dict(zip(columns, map(cell, row), strict=True)) for row in rows]
    *shown, last = columns
    width = {
        name: max([len(name), *(one[name].cell_len for one in cells)])
        for name in columns
    }
    least = min(_LAST_WIDTH_MIN, width[last])

    def room(most: int) -> int:
        return screen.width - sum(2 + min(most, width[name]) for name in shown)

    most = screen.width // (_NAME_SHARE if screen.is_terminal else 1)
    spares = list(spare)
    while screen.is_terminal and room(most) < least and spares:
        shown.remove(spares.pop(0))
    if room(screen.width) >= least:
        most = screen.width  # Nothing needs to be cut.
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        justify: Any = "right" if name in right else "left"
        table.add_column(
            name, justify=justify, no_wrap=True, max_width=min(most, width[name])
        )
    table.add_column(
        last,
        justify="right" if last in right else "left",
        no_wrap=True,
        max_width=max(room(most), len(last)),
    )
    for row in cells:
        table.add_row(*(row[name] for name in (*shown, last)))
    _print(screen, table)


def _print(screen: Console, table: Table) -> None:
    if screen.is_terminal:
        screen.print(table)
        return
    with screen.capture() as capture:
        screen.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_line(*parts: str) -> None:
    """Print one line of text and data."""
    click.echo("  ".join(one_line(part) for part in parts if part))


def heading(text: str) -> None:
    """Print the heading of a section."""
    from rich.text import Text  # noqa: PLC0415 - see above

    console().print(Text(f"\n{text}", style="bold"))


def tick_object(tick: JobTick) -> dict[str, Any]:
    """Return which tick a job is of, for ``--json``."""
    return {
        "name": tick.schedule,
        "at": iso_time(tick.nominal_ms),
        "local": local_time(tick.nominal_ms, zone_here(tick)).isoformat(),
        "backfilled": tick.backfilled,
    }
