"""Every crash point of the SQLite store, and power cuts, with a page of figures.

First, each operation (create, migrate, enqueue, lease, settle, reclaim, prune, open
after a crash, …) is killed before each of its system calls, and each of its calls
fails with each errno that it may have, once and for good, alone and beside a neighbour
that keeps the file open. Then the power fails: what was not synced is lost, torn or
reordered. After each, the state must be the old or the new one, with everything
acknowledged, and the operation must succeed when it is tried again.

Finally `jobpool move` is hit in the same ways while it moves a queue into a real
PostgreSQL server; then another process continues the move, or gives it up.
"""

from __future__ import annotations

import argparse
import errno
import json
import multiprocessing
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from support.crash_points import filter as crash_filter
from support.crash_points.move import MovePoint, points_of_a_move, run_move_point
from support.crash_points.operations import OPERATIONS
from support.crash_points.point import Point, Result, points_of, run_point
from support.crash_points.power_cut import Cut, cut_the_power, cuts_of
from support.crash_points.states import reference, work_root
from support.postgres.server import server

PROBLEMS_SHOWN_MAX = 40
_PROCESSES = 2


def main() -> int:
    """Run the chosen points; return 0 only if nothing was wrong."""
    options = _options()
    if not crash_filter.is_available():
        print(
            "crash-points: this kernel or architecture cannot tell a parent of system "
            "calls (seccomp user notification, Linux 5.0 on x86_64 or aarch64)",
            file=sys.stderr,
        )
        return 2
    started_s = time.monotonic()
    names = options.operation or list(OPERATIONS)
    work_root()  # Made here, so that it is removed here; the server as well.
    if options.moves:
        server()
    for name in names:  # Else each process would make it for itself.
        reference(name)
    rng = random.Random(options.seed)  # noqa: S311 - repeatable, not secret
    with multiprocessing.get_context("fork").Pool(_PROCESSES) as pool:
        ways = [(name, beside) for name in names for beside in (False, True)]
        if options.points:  # To find all of an operation's points takes long.
            ways = [(name, rng.random() < 0.5) for name in names]  # noqa: PLR2004
        points = [p for found in pool.imap(_points_of, ways) for p in found]
        known = len(points)
        if options.points:
            points = _spread(points, options.points, rng)
        hits = list(zip(points, pool.imap(run_point, points, 8), strict=False))
        cuts = list(cuts_of(names, options.power_cuts, rng))
        outages = list(zip(cuts, pool.imap(cut_the_power, cuts, 8), strict=False))
        moves = points_of_a_move() if options.moves else []
        moves = rng.sample(moves, min(options.moves, len(moves)))
        moved = list(zip(moves, pool.imap(run_move_point, moves), strict=False))
    page = _page(hits, outages, moved, known)
    page |= {"seed": options.seed, "seconds": round(time.monotonic() - started_s, 1)}
    print(json.dumps(page) if options.json else _text(page))
    return 1 if page["violations"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/crash-points", description=__doc__)
    parser.add_argument(
        "--points",
        type=int,
        help="at most this many, of each operation alone or beside a neighbour; "
        "default: all",
    )
    parser.add_argument("--power-cuts", type=int, default=1000, help="default: 1000")
    parser.add_argument("--moves", type=int, default=100, help="default: 100")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument(
        "--operation",
        action="append",
        choices=list(OPERATIONS),
        help="only this one; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args()


def _spread(points: list[Point], count: int, rng: random.Random) -> list[Point]:
    """Return some points: of each operation as many, and of each of its calls.

    Most points are where a page is read or memory asked for, and in migrations. What
    loses or tears data is at the few calls that sync, lock, truncate or unlink. Each
    fault is among them, the rarest too.
    """
    calls: dict[tuple[str, str], list[Point]] = {}
    faults: dict[int, Point] = {}
    for point in rng.sample(points, len(points)):
        calls.setdefault((point.operation, point.call), []).append(point)
        faults.setdefault(point.error, point)
    operations: dict[str, list[list[Point]]] = {}
    for (operation, _), found in rng.sample(list(calls.items()), len(calls)):
        operations.setdefault(operation, []).append(found)
    chosen = (*faults.values(), *_in_turn(map(_in_turn, operations.values())))
    return list(dict.fromkeys(chosen))[:count]


def _in_turn(lists: Iterable[list[Point]]) -> list[Point]:
    """Return what is in the lists, one of each at a time."""
    turns = zip_longest(*lists)
    return [point for turn in turns for point in turn if point is not None]


def _points_of(way: tuple[str, bool]) -> list[Point]:
    name, with_neighbour = way
    return list(points_of(name, neighbour=with_neighbour))


def _page(
    hits: list[tuple[Point, Result]],
    outages: list[tuple[Cut, str | None]],
    moved: list[tuple[MovePoint, str | None]],
    known: int,
) -> dict[str, Any]:
    faults = Counter(
        errno.errorcode[point.error] if point.error else "SIGKILL" for point, _ in hits
    )
    found = [f"{point}: {one.problem}" for point, one in hits if one.problem]
    found += [f"{cut}: {problem}" for cut, problem in outages if problem]
    found += [f"{point}: {problem}" for point, problem in moved if problem]
    trials = len(hits) + len(outages) + len(moved)
    return {
        "points": len(hits),
        "points_known": known,
        "points_met": sum(one.was_met for _, one in hits),
        "errors_reported": sum(one.was_reported for _, one in hits),
        "faults": dict(sorted(faults.items())),
        "by_operation": dict(Counter(point.operation for point, _ in hits)),
        "power_cuts": len(outages),
        "moves": len(moved),
        "violations": len(found),
        # With none seen in n trials, the rule of three.
        "at_most_with_95_percent": None if found or not trials else 3 / trials,
        "problems": found[:PROBLEMS_SHOWN_MAX],
    }


def _text(page: dict[str, Any]) -> str:
    return "\n".join(_lines(page))


def _lines(page: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{page['points']} of {page['points_known']} crash points "
        f"({page['points_met']} met), {page['power_cuts']} power cuts, "
        f"{page['moves']} moves, {page['seconds']} s, seed {page['seed']}"
    )
    for what in ("faults", "by_operation"):
        yield f"{what}: {', '.join(f'{k} {v}' for k, v in page[what].items())}"
    yield f"errors that the operation reported: {page['errors_reported']}"
    bound = page["at_most_with_95_percent"]
    yield f"violations: {page['violations']}" + (
        f" (fewer than {bound:.1e} a trial, with 95 % certainty)" if bound else ""
    )
    yield from page["problems"]


if __name__ == "__main__":
    sys.exit(main())
