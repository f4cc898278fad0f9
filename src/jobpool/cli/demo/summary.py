"""Prints what a demo has found; as one JSON object, or for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jobpool.cli.demo.household import Memory
from jobpool.cli.demo.material import Material
from jobpool.cli.demo.tally import Hostile, Tally
from jobpool.core.quantity import show_duration, show_size

_NARROW = 100
"""Columns below which the table leaves out what its rows do."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A finished demo."""

    directory: Path
    kept: bool
    resumed: bool
    """Jobs and results of an earlier demo in this directory are counted in."""
    seconds: float
    """Of this supervisor, from its start to the last job's end."""
    jobs_ended: int
    """During this time."""
    material: Material
    found: Tally
    memory: Memory
    daemons: int
    """Were left behind by hostile jobs, and ended."""
    left: Sequence[int]
    problems: Sequence[str]

    @property
    def jobs_per_s(self) -> float:
        """Mean over the whole time."""
        return self.jobs_ended / self.seconds if self.seconds else 0.0


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as one JSON object."""
    found, material = report.found, report.material
    return {
        "ok": not report.problems,
        "problems": report.problems,
        "directory": str(report.directory),
        "kept": report.kept,
        "resumed": report.resumed,
        "seconds": round(report.seconds, 3),
        "jobs": found.honest.jobs + len(found.hostile),
        "jobs_ended": report.jobs_ended,
        "jobs_per_s": round(report.jobs_per_s, 1),
        "honest": found.honest,
        "modules": {
            "roots": material.modules.roots,
            **msgspec.structs.asdict(found.modules),
            "check": sizes_command(material),
        },
        "packages": {
            "roots": material.packages.roots,
            **msgspec.structs.asdict(found.packages),
            "check": checksum_command(material),
        },
        "hostile": found.hostile,
        "daemons": report.daemons,
        "memory": {
            "supervisor_peak_bytes": report.memory.supervisor_peak_bytes,
            "child_peak_bytes": found.child_peak_bytes,
            "family_peak_bytes": report.memory.family_peak_bytes,
        },
        "processes_left": len(report.left),
    }


def sizes_command(material: Material) -> str:
    """Return the command that prints lines and bytes of all modules."""
    return f"{material.modules.command} | xargs -d '\\n' cat | wc -lc"


def checksum_command(material: Material) -> str:
    """Return the command that prints the checksum of all checksums."""
    return f"{material.packages.command} | xargs -d '\\n' sha256sum | sha256sum"


def print_report(console: Console, report: Report) -> None:
    """Print the report for people."""
    _print_honest(console, report)
    _print_hostile(console, report)
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
    if report.kept:
        console.print(
            f"kept: {report.directory}  (jobpool list --store "
            f"sqlite:///{report.directory}/demo.db)",
            style="dim",
            soft_wrap=True,
        )


def _print_honest(console: Console, report: Report) -> None:
    honest, modules = report.found.honest, report.found.modules
    packages, material = report.found.packages, report.material
    _head(console, "HONEST")
    retried = (
        f", {honest.recovered:,} after an interruption" if honest.recovered else ""
    )
    console.print(
        f"{honest.succeeded:,} of {honest.jobs:,} jobs succeeded, "
        f"{honest.first_attempt:,} at their first attempt{retried}"
    )
    _fact(
        console,
        f"{modules.files:,} modules of Python's library: {modules.lines:,} lines, "
        f"{modules.bytes:,} bytes ({modules.compressed_bytes:,} after lzma), "
        f"{modules.functions:,} functions, {modules.classes:,} classes, "
        f"{modules.branches:,} branches; {modules.not_python:,} are no Python on "
        "purpose",
        sizes_command(material),
    )
    _fact(
        console,
        f"{packages.files:,} files of installed packages: {packages.bytes:,} bytes, "
        f"sha256 {packages.sha256}",
        checksum_command(material),
    )


def _fact(console: Console, text: str, check: str) -> None:
    console.print(Padding(Text(text), (0, 0, 0, 2)))
    console.print(Text(f"    {check}", style="dim"), soft_wrap=True)


def _print_hostile(console: Console, report: Report) -> None:
    _head(console, "CONTAINED")
    is_wide = console.width >= _NARROW
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("KIND", no_wrap=True)
    if is_wide:
        table.add_column("WHICH")
    table.add_column("OUTCOME", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    table.add_column("TRY", justify="right")
    table.add_column("PEAK", justify="right", no_wrap=True)
    table.add_column("LAST")
    for item in report.found.hostile:
        table.add_row(*_row(item, is_wide=is_wide))
    console.print(table)


def _row(item: Hostile, *, is_wide: bool) -> list[Text]:
    mark = Text("✔", style="green") if item.contained else Text("✘", style="bold red")
    peak = show_size(item.peak_rss_bytes) if item.peak_rss_bytes else "-"
    does = [Text(item.does)] if is_wide else []
    return [
        mark,
        Text(item.kind.removeprefix("hostile.")),
        *does,
        Text(item.outcome or "-"),
        Text(item.state),
        Text(str(item.attempts)),
        Text(peak),
        Text(_end_of(item)),
    ]


def _end_of(item: Hostile) -> str:
    """Say what the last attempt ended with."""
    if item.signal is not None:
        return f"signal {item.signal}"
    if item.exit_code is not None:
        return f"exit {item.exit_code}"
    return "exception" if item.failures else "returned"


def _print_figures(console: Console, report: Report) -> None:
    _head(console, "FIGURES")
    memory = report.memory
    rows = (
        (
            "speed",
            (
                f"{report.jobs_ended:,} jobs in {show_duration(report.seconds)}: "
                f"{report.jobs_per_s:,.0f} jobs/s"
            ),
        ),
        ("supervisor", f"{show_size(memory.supervisor_peak_bytes)} at its peak"),
        (
            "children",
            (
                f"{show_size(report.found.child_peak_bytes)} the hungriest attempt, "
                f"{show_size(memory.family_peak_bytes)} all together (shared pages count "
                "in each)"
            ),
        ),
        ("daemons", f"{report.daemons} were left behind, and ended"),
        ("left", f"{len(report.left)} processes"),
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan")
    grid.add_column()
    for name, text in rows:
        grid.add_row(name, text)
    console.print(grid)


def _head(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold"))
