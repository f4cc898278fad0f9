"""Shows a running demo: verdicts scroll by; on a terminal, bars move below them."""

from __future__ import annotations

import re

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobpool.cli.demo.cases import BY_KIND, HOSTILE
from jobpool.cli.demo.progress import Contained, Sample
from jobpool.cli.demo.supervisor import Memory
from jobpool.core.jobs.budget import attempt_words
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.safe_text import one_line
from jobpool.core.units import show_size

STATE_COLOURS = {"succeeded": "green", "dead": "red", "quarantined": "bold red"}
_KIND_WIDTH = 12
_REASON_MAX = 60


def live(console: Console) -> Live:
    """Return what `show` draws on, to be entered; no bar stays."""
    return Live(console=console, auto_refresh=False, transient=True)


def show(screen: Live, sample: Sample, memory: Memory, elapsed_s: float) -> None:
    """Scroll what is new, and draw the bars anew."""
    for item in sample.news:
        line = verdict_line(item, elapsed_s)
        if screen.console.is_terminal:
            screen.console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            screen.console.print(line, soft_wrap=True)
    bars = Table.grid(padding=(0, 2), expand=True)
    bars.add_column(style="bold cyan")
    bars.add_column(ratio=1)
    bars.add_column(justify="right")
    bars.add_column(justify="right", style="dim")
    for name, pool in sample.pools.items():
        bars.add_row(
            name,
            ProgressBar(pool.jobs or 1, pool.ended, complete_style="green"),
            f"{pool.ended:,} of {pool.jobs:,}",
            f"{pool.running} taken",
        )
    footer = Text(style="dim", no_wrap=True, overflow="ellipsis").append(
        f"{clock(elapsed_s)}   {sample.ended / max(elapsed_s, 1.0):,.0f} jobs/s   "
        f"supervisor {show_size(memory.supervisor_bytes)}   "
        f"{memory.family} processes below it {show_size(memory.family_bytes)}"
    )
    screen.update(Group(Text(), bars, footer), refresh=True)


def verdict_line(item: Contained, elapsed_s: float) -> Text:
    """Return the line about one contained attempt."""
    name = item.kind.removeprefix(HOSTILE)
    line = Text(overflow="ellipsis", no_wrap=True)
    line.append(f"{clock(elapsed_s)}  ", style="dim")
    line.append(f"{name:<{_KIND_WIDTH}}", style="bold")
    line.append(f"  {attempt_words(item.attempt)}  ", style="dim")
    if item.state is not None:
        line.append(item.state, style=STATE_COLOURS.get(item.state, ""))
        line.append(": ")
    if item.outcome is Outcome.SUCCEEDED:
        return line.append(BY_KIND[item.kind].held)
    # Behind it stand the signal's description and the verdict on the job.
    reason = re.split(r"; | \(", item.reason or item.outcome, maxsplit=1)[0]
    return line.append(one_line(reason, _REASON_MAX))


def clock(elapsed_s: float) -> str:
    """Return the time since the start, of constant width."""
    minutes, seconds = divmod(elapsed_s, 60)
    return f"{int(minutes):2}:{seconds:04.1f}"
