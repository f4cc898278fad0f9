"""Shows a running demo: live on a terminal, as plain lines elsewhere, or not at all."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobpool.cli.demo.cases import BY_KIND
from jobpool.cli.demo.household import Memory
from jobpool.cli.demo.watching import Contained, Look
from jobpool.core.budget import attempt_words
from jobpool.core.outcome import Outcome
from jobpool.core.printable import one_line
from jobpool.core.quantity import show_size

_LINE_EVERY_S = 2.0
_KIND_WIDTH = 12
STATE_COLOURS = {
    "succeeded": "green",
    "dead": "red",
    "quarantined": "bold red",
}
_REASON_MAX = 60


class View(Protocol):
    """Something that shows progress."""

    def live(self) -> AbstractContextManager[object]:
        """Keep what is shown up to date while this is open."""
        ...

    def show(self, look: Look, memory: Memory, elapsed_s: float) -> None:
        """Show the latest look."""
        ...

    def say(self, text: str) -> None:
        """Show one line that stays."""
        ...


def view_for(console: Console, *, quiet: bool) -> View:
    """Return the view that fits where the output goes."""
    if quiet:
        return Silence()
    return LiveView(console) if console.is_terminal else PlainView(console)


class Silence:
    """Shows nothing."""

    def live(self) -> AbstractContextManager[object]:
        """Do nothing."""
        return nullcontext()

    def show(self, look: Look, memory: Memory, elapsed_s: float) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""


class PlainView:
    """A line now and then, and one for each contained attempt.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_s = -_LINE_EVERY_S

    def live(self) -> AbstractContextManager[object]:
        """Do nothing: lines stay."""
        return nullcontext()

    def show(self, look: Look, memory: Memory, elapsed_s: float) -> None:
        """Print what is new, and the state of things if it is time."""
        for item in look.news:
            self._console.print(verdict(item, elapsed_s), soft_wrap=True)
        if elapsed_s - self._last_s >= _LINE_EVERY_S or look.is_over:
            self._last_s = elapsed_s
            pools = "  ".join(
                f"{name} {pool.ended}/{pool.jobs}" for name, pool in look.pools.items()
            )
            line = f"{clock(elapsed_s)}  {pools}  {usage(memory)}"
            self._console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, soft_wrap=True)


class LiveView:
    """Bars that move, with verdicts scrolling above them.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._pace = Pace()

    def live(self) -> AbstractContextManager[object]:
        """Draw while this is open; nothing of the bars stays."""
        return self._live

    def show(self, look: Look, memory: Memory, elapsed_s: float) -> None:
        """Scroll what is new, and draw the bars anew."""
        for item in look.news:
            self._live.console.print(
                verdict(item, elapsed_s), no_wrap=True, overflow="ellipsis"
            )
        per_s = self._pace.per_s(look.ended, elapsed_s)
        self._live.update(
            Group(Text(), bars(look), footer(memory, per_s, elapsed_s)), refresh=True
        )

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self._live.console.print(text)


class Pace:
    """Jobs per second over the last few looks."""

    _SPAN = 10

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def per_s(self, ended: int, at_s: float) -> float:
        """Take a look's count, and return the present pace."""
        self._seen = [*self._seen[-self._SPAN :], (at_s, ended)]
        first_s, first = self._seen[0]
        return (ended - first) / (at_s - first_s) if at_s > first_s else 0.0


def bars(look: Look) -> RenderableType:
    """Return one bar per pool."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold cyan")
    table.add_column(ratio=1)
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    for name, pool in look.pools.items():
        table.add_row(
            name,
            ProgressBar(
                total=pool.jobs or 1, completed=pool.ended, complete_style="green"
            ),
            f"{pool.ended:,} of {pool.jobs:,}",
            f"{pool.running} taken",
        )
    return table


def footer(memory: Memory, per_s: float, elapsed_s: float) -> Text:
    """Return the line of figures below the bars."""
    return Text(
        f"{clock(elapsed_s)}   {per_s:,.0f} jobs/s   {usage(memory)}",
        style="dim",
        no_wrap=True,
        overflow="ellipsis",
    )


def usage(memory: Memory) -> str:
    """Say how much memory is in use."""
    return (
        f"supervisor {show_size(memory.supervisor_bytes)}   "
        f"{memory.family} processes below it {show_size(memory.family_bytes)}"
    )


def verdict(item: Contained, elapsed_s: float) -> Text:
    """Return the line about one contained attempt."""
    name = item.kind.removeprefix("hostile.")
    line = Text(overflow="ellipsis", no_wrap=True)
    line.append(f"{clock(elapsed_s)}  ", style="dim")
    line.append(f"{name:<{_KIND_WIDTH}}", style="bold")
    line.append(f"  {attempt_words(item.attempt)}  ", style="dim")
    if item.state is not None:
        line.append(item.state, style=STATE_COLOURS.get(item.state, ""))
        line.append(": ")
    line.append(what_happened(item))
    return line


def what_happened(item: Contained) -> str:
    """Say in a few words how an attempt ended, and what held it."""
    if item.outcome is Outcome.SUCCEEDED:
        return BY_KIND[item.kind].held
    # Behind it stand the signal's description and the verdict on the job.
    reason = re.split(r"; | \(", item.reason or item.outcome, maxsplit=1)[0]
    return one_line(reason, _REASON_MAX)


def clock(elapsed_s: float) -> str:
    """Return the time since the start, of constant width."""
    minutes, seconds = divmod(elapsed_s, 60)
    return f"{int(minutes):2}:{seconds:04.1f}"
