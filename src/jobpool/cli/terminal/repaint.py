"""Paints again and again what a command prints: `watch`, without its flicker.

What is printed is caught, cut to the terminal's size, and only the lines that have
changed are written.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stdout

from rich.console import Console
from rich.text import Text

from jobpool.cli.output import console
from jobpool.cli.terminal.keys import Terminal
from jobpool.errors import StoreUnavailable

_ENDING = {"q", "escape"}


class _Page(io.StringIO):
    """Takes what a command prints, with its colours and as wide as the terminal."""

    def isatty(self) -> bool:
        """Say that it is one: what prints asks."""
        return True


class Canvas:
    """A terminal of which only those lines are written that have changed."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.console = console()
        self._drawn: list[str] = []

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self.console.size

    def paint(self, lines: list[Text]) -> None:
        """Show lines, each at most as wide as the terminal, from the top on."""
        if self._terminal.is_new:
            self._terminal.is_new, self._drawn = False, []
            self._terminal.write("\x1b[2J")
        drawn = [drawn_line(self.console, line) for line in lines]
        before = self._drawn + [""] * (len(drawn) - len(self._drawn))
        news = [
            f"\x1b[{n};1H\x1b[2K{line}"
            for n, (line, old) in enumerate(zip(drawn, before, strict=False), 1)
            if line != old
        ]
        gone = range(len(drawn) + 1, len(self._drawn) + 1)
        news += [f"\x1b[{n};1H\x1b[2K" for n in gone]
        self._drawn = drawn
        if news:
            self._terminal.write("".join(news))


def drawn_line(screen: Console, line: Text) -> str:
    """Return a line as a terminal gets it."""
    with screen.capture() as capture:
        screen.print(line, end="", no_wrap=True, overflow="crop", soft_wrap=True)
    return capture.get()


def repaint(show: Callable[[], None], every_s: float) -> None:
    """Print something again and again, until q or Ctrl-C.

    A store that is away is told in the first line; what was printed before stays.

    Args:
        show: prints it.
        every_s: how long to wait between two times.
    """
    page = ""
    with Terminal() as terminal:
        canvas = Canvas(terminal)
        while not terminal.is_ended:
            trouble = ""
            try:
                page = printed(show)
            except StoreUnavailable as exc:
                trouble = str(exc)
            due_s = time.monotonic() + every_s
            while (left_s := due_s - time.monotonic()) > 0 and not terminal.is_ended:
                canvas.paint(_fitted(page, trouble, every_s, canvas))
                if _ENDING & set(terminal.keys(left_s)):
                    return


def printed(show: Callable[[], None]) -> str:
    """Return what is printed, as a terminal would get it."""
    with redirect_stdout(_Page()) as caught:
        show()
    return caught.getvalue()


def _fitted(page: str, trouble: str, every_s: float, canvas: Canvas) -> list[Text]:
    """Return the lines of a page that fit, wrapped; the last says what does not."""
    width, height = canvas.size
    lines = [Text(f"every {every_s:g} s; q ends", style="dim")]
    if trouble:
        lines.append(Text(f"not read, trying again: {trouble}", style="bold red"))
    options = canvas.console.options.update(width=width)
    text = Text.from_ansi(page.rstrip("\n"))
    for one in canvas.console.render_lines(text, options, pad=False):
        line = Text()
        for part, style, _ in one:
            line.append(part, style)
        lines.append(line)
    if len(lines) > height:
        hidden = len(lines) - height + 1
        lines[height - 1 :] = [Text(f"… {hidden} more lines", style="dim")]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines
