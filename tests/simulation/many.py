"""Many scenarios on several processors, and the sums of their results."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from simulation.draw import is_usual
from simulation.long import is_long
from simulation.simulate import run_seed

USUAL, ALL = 300, 2500
"""Each gate runs so many seeds, and of so many those of unusual lives."""
LATE = frozenset({442, 868, 2720, 3259, 3301, 6442, 7695})
"""Lives beyond those in which a planted bug or a rare event was seen first."""
CHUNK = 50
GC_AFTER = 50_000
"""Scenarios leave cycles behind, but few; searching for them often costs a tenth."""


class Sums(NamedTuple):
    """The results of some seeds."""

    seeds: int
    simulated_s: float
    events: int
    records: int
    sometimes: Counter[str]
    failed: dict[int, str]
    """What was found first, by seed."""


NOTHING = Sums(0, 0.0, 0, 0, Counter(), {})


def add(one: Sums, other: Sums) -> Sums:
    """Return the sums of both."""
    return Sums(
        one.seeds + other.seeds,
        one.simulated_s + other.simulated_s,
        one.events + other.events,
        one.records + other.records,
        one.sometimes + other.sometimes,
        one.failed | other.failed,
    )


def sample() -> list[int]:
    """Return the seeds that each gate runs.

    Bugs of what few lives have (quotas, schedules, a second release, days) are seen
    late: of these lives it takes more.
    """
    return [
        seed
        for seed in range(ALL)
        if seed < USUAL or is_long(seed) or not is_usual(seed)
    ] + sorted(LATE)


def run_some(seeds: Sequence[int], enough: int = CHUNK) -> Sums:
    """Run some seeds in this process, until enough of them have failed."""
    gc.set_threshold(GC_AFTER, 20, 20)
    sums = NOTHING
    for seed in seeds:
        result = run_seed(seed)
        failed = {}
        if result.found:
            found = result.found[0]
            failed[seed] = f"{found.rule}: job {found.job}: {found.text}"
        sums = add(
            sums,
            Sums(
                1,
                result.simulated_s,
                result.events,
                len(result.history.records),
                result.sometimes,
                failed,
            ),
        )
        if len(sums.failed) >= enough:
            break
    return sums


def run_many(
    seeds: Sequence[int],
    *,
    processes: int,
    said: Callable[[Sums], None] = lambda _sums: None,
    until_s: float = float("inf"),
    enough: int = CHUNK,
) -> Sums:
    """Run many seeds.

    Args:
        seeds: which.
        processes: in so many processes.
        said: told of the sums so far now and then.
        until_s: monotonic time from which on no more are begun.
        enough: failed seeds after which no more are begun.
    """
    sums = NOTHING
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        chunks = _chunks(seeds)
        running = {
            pool.submit(run_some, chunk, enough)
            for chunk in islice(chunks, 2 * processes)
        }
        while running:
            done = next(as_completed(running))
            running.discard(done)
            sums = add(sums, done.result())
            said(sums)
            if len(sums.failed) >= enough or time.monotonic() >= until_s:
                continue
            following = next(chunks, None)
            if following is not None:
                running.add(pool.submit(run_some, following, enough))
    return sums


def _chunks(seeds: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(seeds), CHUNK):
        yield seeds[start : start + CHUNK]
