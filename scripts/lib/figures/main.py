"""Measures jobpool's promised figures on this machine, with real processes.

Every figure comes from what handlers and the kernel recorded, not from what the
supervisor reports: handlers write CLOCK_MONOTONIC to a file, and memory figures are the
kernel's. Run it on an otherwise idle machine. PostgreSQL is a new server that commits
to the disk, or the one that JOBPOOL_TEST_POSTGRES names.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from figures import (
    children,
    deaths,
    executor,
    limits,
    neighbours,
    pace,
    postgres,
    postgres_store,
    prune,
    schedules,
    shares,
    ticks,
)
from figures.ground import Ground, Section, read_sqlite, sqlite_store


def main() -> None:
    """Measure the chosen sections and print a table."""
    on_sqlite: dict[str, Section] = {
        "kills": limits.kill_lateness,
        "kills-busy": limits.kill_lateness_busy,
        "memory": limits.memory_overshoot,
        "recovery": pace.slot_recovery,
        "pick-up": pace.pick_up,
        "throughput": pace.throughput,
        "idle": pace.idle_cost,
        "deaths": deaths.mixed_deaths,
        "executor": executor.throughput,
        "children": children.cost,
        "neighbours": neighbours.slowed,
        "prune": prune.beside_traffic,
        "schedules": schedules.year_of_ticks,
        "ticks": ticks.steps,
        "shares": shares.flooded,
    }
    stores = {
        "sqlite": (on_sqlite, sqlite_store, read_sqlite),
        "postgresql": (postgres.SECTIONS, postgres_store.fresh_store, postgres.read),
    }
    options = arguments({store: parts[0] for store, parts in stores.items()})
    sections, fresh_store, read = stores[options.store]
    found: dict[str, object] = {}
    for name in options.only or sections:
        if not options.json:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="jobpool-figures-") as directory:
            ground = Ground(Path(directory), fresh_store, read)
            found |= sections[name](ground, options)
    if options.json:
        print(json.dumps(found))
        return
    for what, figure in found.items():
        print(f"{what:<58} {figure}")


def arguments(sections: dict[str, dict[str, Section]]) -> argparse.Namespace:
    """Read the command line, given the sections of each store."""
    parser = argparse.ArgumentParser(
        prog="scripts/figures",
        description=__doc__,
        epilog="Sections: "
        + "; ".join(f"{store}: {', '.join(of)}" for store, of in sections.items()),
    )
    parser.add_argument("--store", choices=sections, default="sqlite")
    parser.add_argument("--only", metavar="SECTION", action="append", help="see below")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--kills", type=int, default=100, help="kills of each kind, hogs of each kind"
    )
    parser.add_argument("--jobs", type=int, default=30_000, help="no-op jobs")
    parser.add_argument(
        "--rounds", type=int, default=5, help="of the executors, and of neighbours"
    )
    parser.add_argument(
        "--submits", type=int, default=10_000, help="calls in a round of the executors"
    )
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of idling")
    parser.add_argument("--deaths", type=int, default=1000, help="mixed deaths")
    parser.add_argument(
        "--finished", type=int, default=300_000, help="old jobs to prune or migrate"
    )
    parser.add_argument(
        "--slice", type=float, default=5.0, help="seconds with pruning, and without"
    )
    group = parser.add_argument_group("PostgreSQL only")
    group.add_argument(
        "--cycle", type=int, default=50_000, help="jobs in a round of the cycle"
    )
    group.add_argument("--calls", type=int, default=2000, help="single enqueues")
    group.add_argument(
        "--rows", type=int, default=1_000_000, help="backlog, and finished jobs"
    )
    group.add_argument(
        "--hold", type=float, default=75.0, help="seconds of an idle transaction"
    )
    options = parser.parse_args()
    if unknown := set(options.only or ()) - set(sections[options.store]):
        parser.error(
            f"--only: {options.store} has no section {', '.join(sorted(unknown))}; "
            f"it has {', '.join(sections[options.store])}"
        )
    return options
