"""Trouble with the store: how long it lasts, and when to try again.

After a failure the store thread waits before it tries again, longer each time; never
for long with a store that several hosts share, and for a random time, so that they do
not all return at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import StoreBack, StoreTrouble
from jobpool.errors import StoreError, StoreFull

FULL_CALM_S = 5.0
"""On a full disk some writes fit into pages that are there: it is over once all have
been stored for so long."""
RETRY_FIRST_S = 0.1
RETRY_LAST_S = 5.0
RETRY_SHARED_S = 0.5


class Trouble:
    """Whether the store is away, for one store thread.

    Args:
        post: takes an event for the log.
        clock: for the times of events.
    """

    def __init__(self, post: Callable[[Event], None], clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._since_s: float | None = None
        self._failed_s = 0.0
        self._is_full = False
        self._pause_s = RETRY_FIRST_S

    @property
    def lasts(self) -> bool:
        """Whether nothing has been written since a failure."""
        return self._since_s is not None

    def seen(self, error: StoreError) -> None:
        """Report trouble, once until the store is back."""
        self._failed_s = self._clock.monotonic_s()
        self._is_full |= isinstance(error, StoreFull)
        if self._since_s is not None:
            return
        self._since_s = self._failed_s
        self._post(
            StoreTrouble(
                at_ms=self._clock.utc_ms(), error=str(error), again_in_s=self._pause_s
            )
        )

    def over(self, *, has_written: bool = True) -> None:
        """The store has answered: report that it is back, if it was away.

        Args:
            has_written: and something was stored, not only read.
        """
        self._pause_s = RETRY_FIRST_S
        if self._since_s is None:
            return
        calm_s = self._clock.monotonic_s() - self._failed_s
        if self._is_full and (not has_written or calm_s < FULL_CALM_S):
            return
        self._is_full = False
        away_s = self._clock.monotonic_s() - self._since_s
        self._since_s = None
        self._post(StoreBack(at_ms=self._clock.utc_ms(), away_s=away_s))

    def next_pause_s(self, *, is_shared: bool) -> float:
        """Return how long to wait before the next try; the one after waits longer.

        Args:
            is_shared: other hosts may use the store.
        """
        pause_s, last_s = self._pause_s, RETRY_LAST_S
        if is_shared:
            pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 - apart, not secret
            last_s = RETRY_SHARED_S
        self._pause_s = min(self._pause_s * 2, last_s)
        return pause_s
