"""Prints what a demo has found: work done, jobs contained, figures, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jobpool.cli.demo.cases import BY_KIND, HOSTILE
from jobpool.cli.demo.supervisor import Memory
from jobpool.cli.demo.verdict import Hostile, Verdict, checksum
from jobpool.cli.demo.view import STATE_COLOURS
from jobpool.cli.demo.workspace import Workspace
from jobpool.core.units import show_duration, show_size
from jobpool.sandbox.protocol.verdict import signal_name

_NARROW = 100
"""Columns below which the table leaves out what its rows do."""
_NUMBERS = ("TRIES", "PEAK")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A finished demo."""

    work: Workspace
    found: Verdict
    seconds: float
    """From the supervisor's start to the last job's end."""
    memory: Memory
    daemons: int
    """Were left behind by hostile jobs, and ended."""
    left: Sequence[int]
    """Processes that still run."""
    problems: Sequence[str]


def print_report(console: Console, report: Report, *, kept: bool) -> None:
    """Print the report for people."""
    _print_honest(console, report.found, report.work)
    _head(console, "CONTAINED")
    console.print(_table(report.found.hostile, is_wide=console.width >= _NARROW))
    _print_figures(console, report)
    console.print()
    for problem in report.problems:
        console.print(f"NOT AS IT MUST BE: {problem}", style="bold red")
    if not report.problems:
        console.print(
            "Every honest job succeeded, every hostile one was contained, "
            "nothing is left.",
            style="bold green",
        )
    if kept:
        where = f"{report.work.directory}  (jobpool list --store {report.work.store})"
        console.print(f"kept: {where}", style="dim", soft_wrap=True)


def _print_honest(console: Console, found: Verdict, work: Workspace) -> None:
    modules, packages = found.modules, found.packages
    _head(console, "HONEST")
    console.print(
        f"{found.succeeded:,} of {found.honest:,} jobs succeeded, "
        f"{found.first_attempt:,} at their first attempt"
    )
    broken = f"; {modules.not_python:,} of them are broken on purpose"
    _fact(
        console,
        f"{modules.files:,} modules of Python's library: {modules.lines:,} lines, "
        f"{modules.bytes:,} bytes ({modules.compressed_bytes:,} after lzma), "
        f"{modules.functions:,} functions, {modules.classes:,} classes"
        f"{broken if modules.not_python else ''}",
        f"{work.modules.command} | xargs -d '\\n' cat | wc -lc",
    )
    files = packages.lines.count("\n")
    _fact(
        console,
        f"{files:,} files of installed packages: {packages.bytes:,} bytes, "
        f"sha256 {checksum(packages)}",
        f"{work.packages.command} | xargs -d '\\n' sha256sum | sha256sum",
    )


def _fact(console: Console, text: str, check: str) -> None:
    """Print a figure, and the command by which anybody can check it."""
    console.print(Padding(Text(text), (0, 0, 0, 2), expand=False))
    console.print(Text(f"    {check}", style="dim"), soft_wrap=True)


def _table(hostile: Sequence[Hostile], *, is_wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    what = ("KIND", "WHICH") if is_wide else ("KIND",)
    for name in ("", *what, "OUTCOME", "BY", "TRIES", "STATE", "PEAK"):
        table.add_column(
            name, no_wrap=True, justify="right" if name in _NUMBERS else "left"
        )
    for one in hostile:
        job, does = one.job, Text(BY_KIND[one.job.kind].does, style="dim")
        table.add_row(
            Text("✔", "green") if one.is_contained else Text("✘", "bold red"),
            Text(job.kind.removeprefix(HOSTILE), style="bold"),
            *((does,) if is_wide else ()),
            job.outcome or "-",
            ended_by(one),
            str(job.attempt),
            Text(job.state, STATE_COLOURS.get(job.state, "")),
            show_size(one.peak_rss_bytes),
        )
    return table


def ended_by(one: Hostile) -> str:
    """Say what ended its last attempt."""
    if one.signal is not None:
        return signal_name(one.signal).partition(" (")[0]
    if one.exit_code is not None:
        return f"exit {one.exit_code}"
    return "exception" if one.job.failures else "returning"


def _print_figures(console: Console, report: Report) -> None:
    _head(console, "FIGURES")
    memory, jobs, took_s = report.memory, report.work.jobs, report.seconds
    hungriest = show_size(report.found.peak_rss_bytes)
    together = show_size(memory.family_peak_bytes)
    rows = {
        "speed": f"{jobs:,} jobs in {show_duration(took_s)}: "
        f"{jobs / took_s:,.0f} jobs/s",
        "supervisor": f"{show_size(memory.supervisor_peak_bytes)} at its peak",
        "children": f"{hungriest} the hungriest attempt, {together} all together "
        "(shared pages count in each)",
        "daemons": f"{report.daemons} were left behind, and ended",
        "left": f"{len(report.left)} processes",
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan")
    grid.add_column()
    for name, text in rows.items():
        grid.add_row(name, text)
    console.print(grid)


def _head(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold"))
