"""Which calls are bundled: neighbours in the queue, so that order is kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobpool.executor.bundles.bundle import budget_s
from jobpool.executor.bundles.bundle_file import CALLS_MAX
from jobpool.executor.bundles.durations import Durations
from jobpool.executor.wire.messages import Task

BUNDLE_S = 0.015
"""How long a bundle should take: long compared to what each costs the host."""
BUNDLE_BYTES_MAX = 2**20
TIMEOUT_MIN_S = 1.0
"""Calls with a shorter limit are not bundled: a bundle adds its margin to the limit."""


def grouped(
    tasks: Iterable[Task], durations: Durations, most: int
) -> Iterator[list[Task]]:
    """Yield lists of calls in their order; a list of several is one bundle.

    Args:
        tasks: in the order of their submission.
        durations: of the functions that they call.
        most: the most calls in one list.
    """
    most = min(most, CALLS_MAX)
    part: list[Task] = []
    limits: tuple[float | None, int | None] = (None, None)
    left_s, left_bytes = 0.0, 0
    for task in tasks:
        cost_s = durations.cost_s(task.function) if _may_share(task) else None
        if cost_s is None:
            if part:
                yield part
                part = []
            yield [task]
            continue
        size = len(task.call)
        own = task.timeout_s, task.memory_bytes
        is_full = len(part) >= most or cost_s > left_s or size > left_bytes
        if part and (is_full or own != limits):
            yield part
            part = []
        if not part:
            limits, left_bytes = own, BUNDLE_BYTES_MAX
            # All of them should have begun by then.
            limit_s = task.timeout_s
            left_s = BUNDLE_S if limit_s is None else min(BUNDLE_S, budget_s(limit_s))
        part.append(task)
        left_s -= cost_s
        left_bytes -= size
    if part:
        yield part


def _may_share(task: Task) -> bool:
    is_fine = task.timeout_s is not None and task.timeout_s < TIMEOUT_MIN_S
    return task.max_crashes == 1 and not is_fine
