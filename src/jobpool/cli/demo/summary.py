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
from jobpool.cli.demo.view import STATE_COLOURS
from jobpool.core.quantity import show_duration, show_size
from jobpool.sandbox.verdict import signal_name

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
    broken = (
        f"; {modules.not_python:,} of them are broken on purpose"
        if modules.not_python
        else ""
    )
    _fact(
        console,
        f"{modules.files:,} modules of Python's library: {modules.lines:,} lines, "
        f"{modules.bytes:,} bytes ({modules.compressed_bytes:,} after lzma), "
        f"{modules.functions:,} functions, {modules.classes:,} classes, "
        f"{modules.branches:,} branches{broken}",
        sizes_command(material),
    )
    _fact(
        console,
        f"{packages.files:,} files of installed packages: {packages.bytes:,} bytes, "
        f"sha256 {packages.sha256}",
        checksum_command(material),
    )


def _fact(console: Console, text: str, check: str) -> None:
    console.print(Padding(Text(text), (0, 0, 0, 2), expand=False))
    console.print(Text(f"    {check}", style="dim"), soft_wrap=True)


def _print_hostile(console: Console, report: Report) -> None:
    _head(console, "CONTAINED")
    is_wide = console.width >= _NARROW
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("KIND", no_wrap=True)
    if is_wide:
        table.add_column("WHICH", no_wrap=True)
    table.add_column("JOBS", justify="right")
    table.add_column("OUTCOME", no_wrap=True)
    table.add_column("BY", no_wrap=True)
    table.add_column("TRIES", justify="right")
    table.add_column("STATE", no_wrap=True)
    table.add_column("PEAK", justify="right", no_wrap=True)
    for alike in grouped(report.found.hostile):
        table.add_row(*_row(alike, is_wide=is_wide))
    console.print(table)


def grouped(items: Sequence[Hostile]) -> list[list[Hostile]]:
    """Put jobs that ended alike into one row each, in the order of their first."""
    groups: dict[object, list[Hostile]] = {}
    for item in items:
        alike = item.kind, item.outcome, ended_by(item), item.attempts, item.state
        groups.setdefault((alike, item.contained), []).append(item)
    return list(groups.values())


def _row(alike: Sequence[Hostile], *, is_wide: bool) -> list[Text]:
    item = alike[0]
    mark = Text("✔", style="green") if item.contained else Text("✘", style="bold red")
    peak = max(item.peak_rss_bytes or 0 for item in alike)
    does = [Text(item.does, style="dim")] if is_wide else []
    return [
        mark,
        Text(item.kind.removeprefix("hostile."), style="bold"),
        *does,
        Text(str(len(alike))),
        Text(item.outcome or "-"),
        Text(ended_by(item)),
        Text(str(item.attempts)),
        Text(item.state, style=STATE_COLOURS.get(item.state, "")),
        Text(show_size(peak)),
    ]


def ended_by(item: Hostile) -> str:
    """Say what ended its last attempt."""
    if item.signal is not None:
        return signal_name(item.signal).partition(" (")[0]
    if item.exit_code is not None:
        return f"exit {item.exit_code}"
    return "exception" if item.failures else "returning"


def _print_figures(console: Console, report: Report) -> None:
    _head(console, "FIGURES")
    hungriest = show_size(report.found.child_peak_bytes)
    speed = f"{report.jobs_per_s:,.0f} jobs/s"
    took = show_duration(report.seconds)
    rows = {
        "speed": f"{report.jobs_ended:,} jobs in {took}: {speed}",
        "supervisor": f"{show_size(report.memory.supervisor_peak_bytes)} at its peak",
        "children": f"{hungriest} the hungriest attempt, {_family(report.memory)}",
        "daemons": f"{report.daemons} were left behind, and ended",
        "left": f"{len(report.left)} processes",
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan")
    grid.add_column()
    for name, text in rows.items():
        grid.add_row(name, text)
    console.print(grid)


def _family(memory: Memory) -> str:
    together = show_size(memory.family_peak_bytes)
    return f"{together} all together (shared pages count in each)"


def _head(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold"))
