"""Admission: how many jobs may wait, and for how long, before producers are told so.

Theory of operation. A limit holds for a `Scope`: a kind, a pool, a tenant or the whole
queue. To count before each job would cost more than to store it. So a `Gauge` keeps the
room that the last look has found, and spends a share of it without looking again, for a
short while; the nearer the limit, the fewer jobs that is, and in the end each job is
looked at. Several producers know nothing of each other: together they exceed a limit by
at most `TRUST_SHARE` of it for each of the others, and by what they are just storing.

A look that takes long is believed for nine times as long, so that looking takes at most
a tenth of the time; meanwhile only what this producer stores is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

QUEUE_DEPTH_MAX = 10_000_000
"""Most unfinished jobs, unless the configuration says otherwise."""
EVERY = "*"
TRUST_SHARE = 1 / 16
"""Of the room that a look has found, so much may be used without another look."""
TRUST_S = 1.0
"""And only for so long."""
SLOW_S = 0.01
"""A quicker look is repeated as often as it is needed."""
MANY = 10_000
"""To count so many may be slow; before the first look nobody knows."""
PATIENCE = 9.0
COUNTED_BEYOND = 10_000
"""So many jobs above a limit are counted; of more it is said that there are more."""
RETRY_MIN_S, RETRY_MAX_S = 1.0, 3600.0
RETRY_UNKNOWN_S = 60.0
"""When to come back if nobody knows how fast jobs end."""
SPREAD = 0.25
"""Jobs for later are spread over so much more than their wait."""
_GOLDEN = 0.6180339887498949
_NO_LIMIT = 2**62


class OnFull(StrEnum):
    """What becomes of a job beyond a limit."""

    REFUSE = "refuse"
    LATER = "later"
    """It is stored, and due once there may be room."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on due jobs that wait; None: there is none."""

    depth_max: int | None = None
    """How many may wait."""
    age_max_s: float | None = None
    """How long the oldest may have waited."""

    def over(self, weaker: Bound) -> Bound:
        """Return this limit; what it does not say is as *weaker* has it."""
        return Bound(
            depth_max=weaker.depth_max if self.depth_max is None else self.depth_max,
            age_max_s=weaker.age_max_s if self.age_max_s is None else self.age_max_s,
        )


class Sort(StrEnum):
    """What a limit is for."""

    QUEUE = "queue"
    POOL = "pool"
    KIND = "kind"
    TENANT = "tenant"


class Scope(NamedTuple):
    """The jobs that one limit counts."""

    sort: Sort
    name: str = ""

    def __str__(self) -> str:
        """Name it, for people: ``kind shop.charge``."""
        return f"{self.sort} {self.name}" if self.name else "the queue"


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit of one producer."""

    depth_max: int = QUEUE_DEPTH_MAX
    """Most unfinished jobs, whether due or not."""
    age_max_s: float | None = None
    """How long the oldest due job of all may have waited; None: no limit."""
    on_full: OnFull = OnFull.REFUSE
    pools: Mapping[str, Bound] = {}
    kinds: Mapping[str, Bound] = {}
    tenants: Mapping[str, Bound] = {}
    """``*``: of all that have no value of their own."""

    @property
    def stored_max(self) -> int:
        """Most unfinished jobs, beyond which nothing is stored for later either."""
        if self.on_full is OnFull.REFUSE:
            return self.depth_max
        return max(self.depth_max, QUEUE_DEPTH_MAX)

    @property
    def whole(self) -> Bound:
        """The limit on the whole queue, as far as `stored_max` is not it already."""
        soft = self.depth_max < self.stored_max
        return Bound(
            depth_max=self.depth_max if soft else None, age_max_s=self.age_max_s
        )

    def of(
        self, kind: str, pool: str, tenant: str | None
    ) -> Iterator[tuple[Scope, Bound]]:
        """Yield the limits that concern a due job, but for `stored_max`."""
        if self.whole != NO_BOUND:
            yield Scope(Sort.QUEUE), self.whole
        if (bound := self.pools.get(pool)) is not None:
            yield Scope(Sort.POOL, pool), bound
        if (bound := self.kinds.get(kind)) is not None:
            yield Scope(Sort.KIND, kind), bound
        if tenant is not None and self.tenants:
            bound = self.tenants.get(tenant, NO_BOUND)
            if (bound := bound.over(self.tenants.get(EVERY, NO_BOUND))) != NO_BOUND:
                yield Scope(Sort.TENANT, tenant), bound

    @property
    def is_plain(self) -> bool:
        """Whether `stored_max` is the only limit."""
        return self.whole == NO_BOUND and not (self.pools or self.kinds or self.tenants)


NO_BOUND = Bound()


class Seen(NamedTuple):
    """What a look at a scope has found."""

    waiting: int = 0
    """Due jobs that wait; of the whole queue: unfinished ones."""
    age_s: float | None = None
    """How long the oldest has waited; None: none waits."""
    oldest: str = ""
    """What the oldest is, for people, if the scope's name does not say it."""


class Gauge:
    """What one producer knows of a scope, and may store without looking again.

    Args:
        bound: the limit.

    Attributes:
        bound: that.
        seen: what the last look has found, and what was stored since.
        is_slow: to look may take long.
    """

    __slots__ = (
        "_room",
        "_stands_until_s",
        "_trusted",
        "_until_s",
        "bound",
        "is_slow",
        "seen",
    )

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.seen = Seen()
        self.is_slow = (bound.depth_max or 0) >= MANY
        self._room = 0
        self._trusted = 0
        self._until_s = float("-inf")
        self._stands_until_s = float("-inf")

    def is_known(self, jobs: int, now_s: float) -> bool:
        """Say whether it can be told without a look if there is room for jobs.

        Args:
            jobs: how many.
            now_s: monotonic time.
        """
        return self.is_trusted(jobs, now_s) or now_s < self._stands_until_s

    def is_trusted(self, jobs: int, now_s: float) -> bool:
        """Say whether jobs fit in for sure, by the last look."""
        return jobs <= self._trusted and now_s < self._until_s

    def look(self, seen: Seen, began_s: float, ended_s: float) -> None:
        """Take in what a look has found, and how long it took by monotonic time."""
        bound, self.seen = self.bound, seen
        room, trust_s = _NO_LIMIT, TRUST_S
        if bound.depth_max is not None:
            room = max(0, bound.depth_max - seen.waiting)
        if bound.age_max_s is not None:
            trust_s = min(trust_s, bound.age_max_s - (seen.age_s or 0.0))
            if is_too_old(seen, bound):
                room = 0
        self._room = room
        self._trusted = int(room * TRUST_SHARE)
        self._until_s = began_s + trust_s
        self.is_slow = ended_s - began_s >= SLOW_S
        if self.is_slow:
            self._stands_until_s = ended_s + PATIENCE * (ended_s - began_s)

    @property
    def room(self) -> int:
        """How many more jobs may be stored, as far as is known."""
        return self._room

    def take(self, jobs: int) -> None:
        """Count jobs that are about to be stored."""
        self._room = max(0, self._room - jobs)
        self._trusted = max(0, self._trusted - jobs)
        waiting, age_s, oldest = self.seen
        self.seen = Seen(waiting + jobs, age_s, oldest)


def is_too_old(seen: Seen, bound: Bound) -> bool:
    """Say whether the oldest job has waited for too long."""
    age_s, most_s = seen.age_s, bound.age_max_s
    return age_s is not None and most_s is not None and age_s > most_s


def excess(seen: Seen, bound: Bound, jobs: int) -> int:
    """Return how many jobs must end before others fit in, at least 1.

    Of jobs that have waited for too long, as many are taken to be as if they had come
    at an even pace.

    Args:
        seen: what was found.
        bound: the limit.
        jobs: how many are to be stored.
    """
    most = 1.0
    if bound.depth_max is not None:
        most = max(most, seen.waiting + jobs - bound.depth_max)
    if bound.age_max_s is not None and seen.age_s is not None:
        late = max(0.0, 1 - bound.age_max_s / max(seen.age_s, 0.001))
        most = max(most, seen.waiting * late)
    return round(most)


def retry_after_s(ahead: float, ends_per_s: float | None, held_s: float = 0.0) -> float:
    """Return when it is worth coming back, in seconds.

    Args:
        ahead: how many jobs must end before.
        ends_per_s: how many do; None or 0: nobody knows.
        held_s: nothing of them begins for so long.
    """
    wait_s = ahead / ends_per_s if ends_per_s else RETRY_UNKNOWN_S
    return min(RETRY_MAX_S, max(RETRY_MIN_S, wait_s + held_s))


def spread(wait_s: float, now_ms: int, place: int) -> float:
    """Return a wait that is up to `SPREAD` longer, so that not all come back at once.

    Args:
        wait_s: the wait.
        now_ms: the clock; two calls rarely have the same.
        place: among the jobs of this call.
    """
    return wait_s * (1 + SPREAD * ((now_ms + place) * _GOLDEN % 1))
