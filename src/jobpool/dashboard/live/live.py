"""What all open pages share: the newest glance at the store, read once for everybody.

Theory of operation. Nothing is read while nobody looks. A page that asks gets what was
read last; if that is old, one read begins, however many ask, and the page waits for it
as long as for any read. What takes longer to count is read less often, so that all of
it together takes a small share of the time; a page shows it as old as it is. Open
pages ask whether anything has changed; a store in which nothing was committed is not
read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from jobpool.core.clock import Clock, SystemClock
from jobpool.dashboard.live.part import Part
from jobpool.dashboard.live.readers import (
    Backlog,
    Backlogs,
    Sights,
    Usage,
    read_usage,
)
from jobpool.dashboard.reading import Reading, Unknown
from jobpool.monitoring.glance.glance import Counts, Glance, Seen, glance_of
from jobpool.store.protocol import Store

T = TypeVar("T")

_SHARED_MAX = 64
"""Things that are remembered by `Live.shared`."""
_FOLLOWED_S = 30.0
"""What no page has asked for so long is not read for open pages."""
_ASK_S = 1.0
_SILENT_S = 15.0
"""An open page hears something so often, so that a lost connection is noticed."""


@dataclass(frozen=True)
class Known:
    """What is known now."""

    glance: Glance | Unknown
    hosts: int
    """With living supervisors."""
    backlog: Backlog | Unknown
    usage: Usage | Unknown
    basis: tuple[object, ...]
    """What all of it follows from."""


class Live:
    """Reads for all viewers together.

    Args:
        opener: opens the store; called in threads.
        clock: for ages.
    """

    def __init__(
        self, opener: Callable[[], Store], *, clock: Clock | None = None
    ) -> None:
        clock = clock or SystemClock()
        self._is_ending = False
        self._readings = [Reading(opener, threads=1) for _ in range(3)]
        glances, backlogs, self._others = self._readings
        self._clock = clock
        self._shared: OrderedDict[str, Part[Any]] = OrderedDict()
        self._seen = Part(glances, Sights().read, clock, every_s=1, share=0.02)
        self._backlog = Part(backlogs, Backlogs().read, clock, every_s=5, share=0.05)
        self._usage = Part(glances, read_usage, clock, every_s=60, share=0.02)
        self._changes = 0

    @property
    def version(self) -> int:
        """What grows with each change that pages are told of, or that was made here."""
        return self._seen.version + self._changes

    async def known(self) -> Known:
        """Return what is known, read anew if it is old and that is done in time."""
        seen, backlog, usage = await asyncio.gather(
            self._seen.known(), self._backlog.known(), self._usage.known()
        )
        if isinstance(seen, Unknown):
            return Known(seen, 0, backlog, usage, ())
        counts = Counts() if isinstance(backlog, Unknown) else backlog.counts
        hosts = {run.host for run in seen.runs if not seen.not_alive[run.id]}
        glance, basis = glance_of(seen, counts), (seen, backlog, usage)
        return Known(glance, len(hosts), backlog, usage, basis)

    async def seen(self) -> Seen | Unknown:
        """Return what runs, and who runs it: its cost does not grow with the jobs."""
        return await self._seen.known()

    async def usage(self) -> Usage | Unknown:
        """Return what kinds have used, at most minutes old."""
        return await self._usage.known()

    async def shared(
        self,
        name: str,
        read: Callable[[Store], T],
        *,
        every_s: float = 5.0,
        waits: bool = True,
    ) -> T | Unknown:
        """Return something that costs more the more jobs there are.

        It is read once for all who ask for it, one such thing at a time, and may be as
        old as reading it takes a small share of the time.

        Args:
            name: of what is read: whoever gives the same name reads the same.
            read: reads it, in a thread; what it raises comes to who asks next.
            every_s: how often it is read, at most.
            waits: False: what is not known yet is not waited for; a page that is open
                is told once it is.
        """
        part = self._shared.pop(name, None) or Part[T](
            self._others,
            lambda store, _: read(store),
            self._clock,
            every_s=every_s,
            share=0.05,
        )
        self._shared[name] = part
        part.asked_s = self._clock.monotonic_s()
        if len(self._shared) > _SHARED_MAX:
            self._shared.popitem(last=False)
        return await part.known() if waits else part.at_hand()

    def numbers(self) -> Backlog | None:
        """Return what was counted last, for the navigation; None: nothing yet.

        It is never waited for.
        """
        self._backlog.look()
        return self._backlog.last

    def expire(self) -> None:
        """Take what is known to be old: somebody has just changed something here."""
        self._changes += 1
        self._seen.expire()
        self._backlog.expire()
        for part in self._shared.values():
            part.expire()

    async def changes(self) -> AsyncIterator[str]:
        """Yield server-sent events for as long as a page is open."""
        before, silent_s = -1, 0.0
        while not self._is_ending:
            self._seen.look()
            self._backlog.look()
            self._follow()
            parts: list[Part[Any]] = [self._seen, self._backlog]
            parts += self._shared.values()
            version = sum(part.version for part in parts)
            if before not in (-1, version):
                yield "event: changed\ndata: \n\n"
                silent_s = 0.0
            elif before == -1 or silent_s >= _SILENT_S:
                yield ": here\n\n"
                silent_s = 0.0
            before = version
            await asyncio.sleep(_ASK_S)
            silent_s += _ASK_S

    def _follow(self) -> None:
        """Read anew what an open page has shown as it was before the last change."""
        now_s = self._clock.monotonic_s()
        for part in self._shared.values():
            part.take()
            is_shown = now_s - part.asked_s < _FOLLOWED_S
            if is_shown and part.basis != self._seen.version:
                part.basis = self._seen.version if part.begins() else part.basis

    def end(self) -> None:
        """End what is sent to open pages, within a second."""
        self._is_ending = True

    def close(self) -> None:
        """Read no more."""
        self.end()
        for reading in self._readings:
            reading.close()
