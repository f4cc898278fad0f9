"""What is reported of the quotas that supervisors define."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.flow import QuotaDiffers, QuotasHeldBack
from jobpool.store.protocol import Store
from jobpool.supervisor.storage.inbox import Posts


class Definitions:
    """Reports, once, what is wrong with quotas as supervisors define them.

    Used in the store thread only.

    Args:
        clock: for the times of events.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: tuple[str, ...] | None = None
        """The kinds that were reported as held back."""
        self._differing: dict[str, str] = {}

    def held_back(self, kinds: tuple[str, ...], reason: str) -> Posts:
        """Report that jobs with quotas do not begin.

        Args:
            kinds: the kinds that have quotas.
            reason: why; "": they do begin.
        """
        before, self._waiting = self._waiting, kinds if reason else None
        if not reason or kinds == before:
            return ()
        now_ms = self._clock.utc_ms()
        return (QuotasHeldBack(at_ms=now_ms, kinds=kinds, reason=reason),)

    def compare(self, store: Store) -> Posts:
        """Report quotas that other supervisors define in other ways; a chore."""
        found = dict(store.differing_quotas())
        before, self._differing = self._differing, found
        return tuple(self._events(found, before))

    def _events(self, found: dict[str, str], before: dict[str, str]) -> Iterator[Event]:
        for quota, reason in found.items():
            if before.get(quota) != reason:
                at_ms = self._clock.utc_ms()
                yield QuotaDiffers(at_ms=at_ms, quota=quota, reason=reason)
