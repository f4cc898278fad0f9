"""Why pools have their sizes and imports, and signals of bottlenecks, in `status`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobpool.cli.output import heading, print_line, print_table
from jobpool.core.rules.run_report import (
    KindReport,
    ReportRow,
)
from jobpool.core.rules.waits import WaitRow
from jobpool.words.figures import ago, seconds, size
from jobpool.words.hosts import host_words, store_words


def summary(reports: Sequence[ReportRow], now_ms: int) -> list[dict[str, Any]]:
    """Return what supervisors report, for programs."""
    return [
        {
            "supervisor": row.run_id,
            "host": row.host,
            "pid": row.pid,
            "age_s": (now_ms - row.at_ms) / 1000,
            "pools": msgspec.to_builtins(row.report.pools),
            "kinds": msgspec.to_builtins(row.report.kinds),
            "host_signals": msgspec.to_builtins(row.report.host),
            "store_signals": msgspec.to_builtins(row.report.store),
            "slots_beyond_memory": msgspec.to_builtins(row.report.memory),
        }
        for row in reports
    ]


def print_sizes(reports: Sequence[ReportRow], ranged: set[tuple[str, str]]) -> None:
    """Show why pools have their sizes, unless that is because they are fixed.

    Args:
        reports: what supervisors report.
        ranged: runs and pools that have a range of sizes.
    """
    lines = [
        (
            f"pool {name} on {row.host}",
            f"{pool.busy} of {pool.size} busy",
            f"wants {pool.wanted}" if pool.wanted > pool.size else "",
            pool.why if (row.run_id, name) in ranged else "",
            f"its jobs wait for {pool.holds}" if pool.holds else "",
        )
        for row in reports
        for name, pool in row.report.pools.items()
        if (row.run_id, name) in ranged or pool.holds
    ]
    if lines:
        heading("SIZES")
        for line in lines:
            print_line(*line)


def print_memory(reports: Sequence[ReportRow]) -> None:
    """Show where slots cannot be used at once, and why."""
    short = [(row, row.report.memory) for row in reports if row.report.memory]
    if short:
        heading("SLOTS BEYOND THE MEMORY BUDGET")
        for row, memory in short:
            whose = f"kind {memory.kind}" if memory.kind else "a job"
            print_line(
                f"{row.host}, {row.pid}",
                f"{memory.usable} of {memory.slots} slots can be used at once",
                f"memory_budget is {size(memory.budget_bytes)}",
                f"{whose} counts with {size(memory.bytes)}"
                + (", its limit" if memory.is_limit else ""),
            )


def print_own_imports(reports: Sequence[ReportRow]) -> None:
    """Show for which pools an application was imported once more, and why."""
    lines = [
        (f"pool {name} on {row.host}", pool.own_import)
        for row in reports
        for name, pool in row.report.pools.items()
        if pool.own_import
    ]
    if lines:
        heading("IMPORTED ONCE MORE (takes the time and memory of an import)")
        for line in lines:
            print_line(*line)


def print_signals(reports: Sequence[ReportRow], now_ms: int) -> None:
    """Show the signals of each bottleneck: host, store, and how kinds end."""
    if not reports:
        return
    heading("HOSTS")
    for row in reports:
        when = ago(row.at_ms, now_ms) or ""
        print_line(f"{row.host}, {row.pid}", *host_words(row.report.host), when)
    heading("STORE (as supervisors see it)")
    for row in reports:
        print_line(f"{row.host}, {row.pid}", *store_words(row.report.store))
    kinds = merged_kinds(reports)
    if kinds:
        heading("ENDS (of the last minute)")
        print_table(
            ("KIND", "A SECOND", "TIMEOUTS", "THROTTLED", "OUT OF MEMORY"),
            (
                (
                    kind,
                    f"{one.ends_per_s:.3g}",
                    *(one.timeouts, one.throttled, one.out_of_memory),
                )
                for kind, one in sorted(kinds.items())
            ),
            right=("A SECOND", "TIMEOUTS", "THROTTLED", "OUT OF MEMORY"),
        )


def merged_kinds(reports: Sequence[ReportRow]) -> dict[str, KindReport]:
    """Return how kinds end on all hosts together."""
    kinds: dict[str, KindReport] = {}
    for row in reports:
        for kind, one in row.report.kinds.items():
            before = kinds.get(kind, KindReport())
            kinds[kind] = KindReport(
                ends_per_s=before.ends_per_s + one.ends_per_s,
                timeouts=before.timeouts + one.timeouts,
                throttled=before.throttled + one.throttled,
                out_of_memory=before.out_of_memory + one.out_of_memory,
                holds=before.holds or one.holds,
            )
    return kinds


def print_waits(rows: Sequence[WaitRow]) -> None:
    """Show what due jobs of each kind have waited for, as shares of their time."""
    heading("WHY (what due jobs have waited for in the last hour)")
    by_kind: dict[tuple[str, str], list[WaitRow]] = {}
    for row in rows:
        by_kind.setdefault((row.kind, row.pool), []).append(row)
    if not by_kind:
        print_line("nothing has waited for long")
        return
    sums = {place: sum(row.job_s for row in of) for place, of in by_kind.items()}
    print_table(
        ("KIND", "POOL", "WAITED", "FOR"),
        (
            (
                *(kind, pool, seconds(sums[kind, pool])),
                ", ".join(
                    f"{row.cause} {row.job_s / sums[kind, pool]:.0%}".replace("%", " %")
                    for row in of
                ),
            )
            for (kind, pool), of in sorted(
                by_kind.items(), key=lambda one: (-sums[one[0]], one[0])
            )
        ),
        right=("WAITED",),
    )
    print_line("WAITED is of all jobs together: 100 that wait for 6 s are 10 minutes.")
