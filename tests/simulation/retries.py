"""The book of retries under the fleet's budget, by the manual's rules alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.store.memory.tables.rows import Row
from support.store.history import Rushed

if TYPE_CHECKING:
    from simulation.world import World

MINUTE_S, SLOT_S = 60.0, 5.0
UNSURE_S = 130.0
"""So long after the store's clock was set, nobody knows which minute it counts."""


class Retries:
    """What has begun, and what should not have."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._firsts_s: list[float] = []
        self._retries_s: list[float] = []
        self._in_slot: Counter[int] = Counter()
        self._unsure_s = 0.0

    def clock_was_set(self) -> None:
        """The store's clock was set."""
        self._unsure_s = self._world.kernel.now_s + UNSURE_S

    def begun(
        self, row: Row, token: int, budget: RetryBudget, now_ms: int
    ) -> Iterator[Rushed]:
        """Take in that a job was leased under the budget; yield it if it was not free.

        Args:
            row: the job.
            token: its lease's.
            budget: as it is in force.
            now_ms: the store's clock.
        """
        now_s = self._world.kernel.now_s
        if not is_retry(row):
            self._firsts_s.append(now_s)
            return
        self._world.sometimes["a retry began under a budget"] += 1
        self._retries_s.append(now_s)
        last = sum(now_s - one < MINUTE_S for one in self._retries_s)
        firsts = sum(now_s - one < MINUTE_S + SLOT_S for one in self._firsts_s)
        most = max(budget.floor.per_second * MINUTE_S, budget.ratio * firsts)
        slot = now_ms // round(SLOT_S * 1000)
        self._in_slot[slot] += 1
        share = math.ceil(math.floor(most) * SLOT_S / MINUTE_S)
        wrong = last > most or self._in_slot[slot] > share
        if wrong and now_s > self._unsure_s:
            text = (
                f"is retry {last} of a minute that may have {most:g}, and "
                f"{self._in_slot[slot]} of five seconds that may have {share}"
            )
            yield Rushed(at_s=now_s, job=row.id, token=token, text=text)


def is_retry(row: Row) -> bool:
    """Return whether an attempt of a job was charged to it."""
    return row.spent.failures + row.spent.crashes > 0
