"""Plants every known bug in turn, and reports which layer detected it, and when.

The results go into tests/planted_bugs/table.md. A test that cannot fail proves nothing:
a bug that is no longer detected is a fault of the tests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import psutil

from planted_bugs import table
from planted_bugs.bug import Bug, Layer


def main() -> int:
    """Plant and report; return 0 only if all bugs were detected."""
    bugs = table.all_bugs()
    names = [bug.name for bug in bugs]
    layers = [str(layer) for layer in Layer]
    parser = argparse.ArgumentParser(prog="scripts/planted", description=__doc__)
    parser.add_argument("--layer", action="append", choices=layers, metavar="LAYER")
    parser.add_argument("--bug", action="append", choices=names, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3000, help="at most; default 3000")
    parser.add_argument("--jobs", type=int, default=2, help="processes, simulating")
    parser.add_argument("--list", action="store_true", help="list the bugs")
    given = parser.parse_args()
    wanted = [
        bug
        for bug in bugs
        if bug.layer in (given.layer or layers) and bug.name in (given.bug or names)
    ]
    if given.list:
        print(*(f"{bug.layer:12}  {bug.name}" for bug in wanted), sep="\n")
        return 0
    missed = 0
    for bug, found in _hunted(wanted, given.seeds, given.jobs):
        missed += found is None
        seen = f"{found.rule:4} {found.after}" if found else "NOT SEEN"
        print(f"{bug.layer:12}  {bug.name:56} {seen}", flush=True)
        table.write({**table.read()[1], bug.name: found}, bugs)
    print(f"{len(wanted) - missed} of {len(wanted)} planted bugs were seen")
    return 1 if missed else 0


def _hunted(
    bugs: Sequence[Bug], seeds: int, processes: int
) -> Iterator[tuple[Bug, table.Found | None]]:
    """Hunt the simulated bugs in parallel, and the others one by one."""
    simulated = [bug for bug in bugs if bug.layer is Layer.SIMULATION]
    hunt = partial(table.hunt, seeds=seeds)
    if simulated:
        context = get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            try:
                yield from zip(simulated, pool.map(hunt, simulated), strict=True)
            except BaseException:
                # A hunt may take minutes, and the pool would wait for each.
                pool.shutdown(wait=False, cancel_futures=True)
                for hunter in psutil.Process().children():
                    hunter.kill()
                raise
    for bug in bugs:
        if bug not in simulated:
            yield bug, hunt(bug)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("planted: interrupted; the results so far are in the table")
