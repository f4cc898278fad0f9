"""Something that is read for everybody, by one read at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from jobpool.core.clock import Clock
from jobpool.dashboard.reading import (
    DEADLINE_S,
    Reading,
    Unknown,
    hear,
    late,
    left_s,
    outcome,
)
from jobpool.store.protocol import Store

T = TypeVar("T")

_OLD_S = 5.0
"""What is older than this is waited for, if it can be had in time."""
_AGAIN_S = 1.0
"""So soon what could not be read is tried again, however seldom it is read."""


class Part(Generic[T]):
    """Something that is read for everybody, by one read at a time.

    Args:
        reading: reads it, in a thread.
        read: what is read; gets what it has returned before, and may return it again.
        clock: for its age.
        every_s: how often it is read, at most.
        share: of the time: the most that goes into reading it.
    """

    def __init__(
        self,
        reading: Reading,
        read: Callable[[Store, T | None], T],
        clock: Clock,
        *,
        every_s: float,
        share: float,
    ) -> None:
        self._reading, self._read, self._clock = reading, read, clock
        self._every_s, self._share = every_s, share
        self._value: T | Unknown | None = None
        self.last: T | None = None
        """What was read last, however old it is."""
        self._read_s = 0.0
        self._wait_s = self._took_s = 0.0
        self._future: Future[T] | None = None
        self.version = 0
        """Grows whenever something else was read."""
        self.asked_s = 0.0
        """When a page asked for it last."""
        self.basis = -1
        """The version of what runs, when reading it for open pages began last."""

    async def known(self) -> T | Unknown:
        """Return what was read last, or what is read now if that is too old."""
        age_s = self.look()
        is_too_old = self._value is None or age_s > max(_OLD_S, 2 * self._wait_s)
        if is_too_old and self._future is not None:
            waited = asyncio.wrap_future(self._future)
            waited.add_done_callback(hear)
            await asyncio.wait([waited], timeout=left_s())
            self.take()
        return late(DEADLINE_S) if self._value is None else self._value

    def at_hand(self) -> T | Unknown:
        """Return what was read last, and begin to read if that is old."""
        self.look()
        return late(DEADLINE_S) if self._value is None else self._value

    def look(self) -> float:
        """Begin to read if what is known is old; return its age in seconds."""
        self.take()
        age_s = self._clock.monotonic_s() - self._read_s
        if self._future is None and (self._value is None or age_s > self._wait_s):
            self._begin()
        return age_s

    def begins(self) -> bool:
        """Begin to read if what is known is old; say whether that was done."""
        before = self._future
        self.look()
        return self._future is not None and self._future is not before

    def expire(self) -> None:
        """Take what was read to be old; who asks waits for what is new."""
        self.take()
        self._read_s = float("-inf")
        self._future = None  # it may have been read before the change

    def _begin(self) -> None:
        last = self.last

        def timed(store: Store) -> T:
            began_s = self._clock.monotonic_s()
            try:
                return self._read(store, last)
            finally:
                self._took_s = self._clock.monotonic_s() - began_s

        self._future = self._reading.begin(timed)

    def take(self) -> None:
        """Take over what was read, if that has ended."""
        if self._future is None or not self._future.done():
            return
        future, self._future = self._future, None
        self._read_s = self._clock.monotonic_s()
        # The first read also fills the database's caches: it says little of others.
        took_s = 0.0 if self._value is None else self._took_s
        found = outcome(future)
        every_s = _AGAIN_S if isinstance(found, Unknown) else self._every_s
        self._wait_s = max(every_s, took_s / self._share)
        if not isinstance(found, Unknown):
            if found is self.last:
                self._value = found
                return
            self.last = found
        self._value = found
        self.version += 1
