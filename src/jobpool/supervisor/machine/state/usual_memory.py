"""What attempts of a kind usually use, so that many may run where each uses little.

Theory of operation. The highest memory of nearly all attempts of a kind, and a margin:
by what has ended here lately, and by what the store knows of older ones, whichever is
more. Less than a hundred attempts do not say what is usual: it takes that many to see
one in a hundred. Ten say what is likely, for as long as the host has memory to spare:
twice the most that any of them has used. If so many were cut short that the quantile
is only a lower bound, nothing is known either. Counts are halved now and then, so that
a kind that has changed is soon known as it is now.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from jobpool.core.rules.usage.sketch import (
    Counts,
    buckets_of,
    quantile,
    value_of,
)

KNOWN_LEAST = 100
"""Fewer attempts tell nothing of one in a hundred."""
SHARE = 0.99
"""Of a kind's attempts need no more than what is called usual."""
MARGIN = 1.25
FIRST_LEAST = 10
"""So many attempts, none of which was cut short, tell what is likely."""
FIRST_MARGIN = 2.0
_LATELY = 5000
"""With so many attempts of a kind, their counts are halved."""
_FOLD = 32
"""So many attempts of a kind wait to be counted."""

Place = tuple[str, str]
"""A kind and its pool."""


class _Lately:
    """Attempts of one kind that have ended here."""

    __slots__ = (
        *("attempts", "bound_bytes", "censored", "fold_after", "likely_bytes"),
        "waiting",
    )

    def __init__(self) -> None:
        self.attempts: Counter[int] = Counter()
        """By bucket."""
        self.censored: Counter[int] = Counter()
        self.waiting: list[int] = []
        """Peaks that are not counted yet."""
        self.bound_bytes: int | None = None
        """What nearly all of them have used; None: unknown."""
        self.likely_bytes: int | None = None
        """The most that any of them has used, if all have ended by themselves."""
        self.fold_after = FIRST_LEAST
        """So many wait to be counted."""

    def fold(self) -> bool:
        """Count what waits; say whether that changes what is known."""
        before_bytes = self.bound_bytes, self.likely_bytes
        self.attempts.update(buckets_of(self.waiting))
        self.waiting.clear()
        if self.attempts.total() > _LATELY:
            self.attempts = _halved(self.attempts)
            self.censored = _halved(self.censored)
        counts = {
            bucket: Counts(attempts, self.censored[bucket])
            for bucket, attempts in self.attempts.items()
        }
        self.bound_bytes = bound_bytes(counts)
        self.likely_bytes, known = None, self.attempts.total()
        if known >= FIRST_LEAST and not any(self.censored.values()):
            self.likely_bytes = round(value_of(max(self.attempts)))
        if known >= KNOWN_LEAST:
            self.fold_after = _FOLD
        return (self.bound_bytes, self.likely_bytes) != before_bytes


class UsualMemory:
    """The memory that attempts usually use, by kind and pool; only for the loop."""

    def __init__(self) -> None:
        self._lately: defaultdict[Place, _Lately] = defaultdict(_Lately)
        self._before: Mapping[Place, int] = {}
        self.version = 0
        """Counts the changes of what is known."""

    def know(self, before: Mapping[Place, int]) -> None:
        """Learn what the store knows of older attempts, in bytes."""
        self.version += before != self._before
        self._before = before

    def succeeded(self, place: Place, peaks_bytes: Iterable[int]) -> None:
        """Add attempts that have returned; 0: its memory was not measured."""
        lately = self._lately[place]
        lately.waiting += filter(None, peaks_bytes)
        if len(lately.waiting) >= lately.fold_after:
            self.version += lately.fold()

    def ended(self, place: Place, bucket: int, *, censored: bool) -> None:
        """Add any other end of an attempt.

        Args:
            place: its kind and pool.
            bucket: of its highest memory.
            censored: it would have used more.
        """
        lately = self._lately[place]
        lately.attempts[bucket] += 1
        lately.censored[bucket] += censored
        self.version += lately.fold()

    def reserved_bytes(self, place: Place) -> int | None:
        """Return what an attempt may be expected to use, with a margin.

        Returns:
            None: too little is known.
        """
        lately = self._lately.get(place)
        here = lately.bound_bytes if lately is not None else None
        bounds = (here, self._before.get(place))
        known = [bound for bound in bounds if bound is not None]
        return int(MARGIN * max(known)) if known else None

    def likely_bytes(self, place: Place) -> int | None:
        """Return what an attempt is likely not to exceed, by the first of its kind.

        Returns:
            None: too little is known even for that.
        """
        lately = self._lately.get(place)
        if lately is None or lately.likely_bytes is None:
            return None
        return int(FIRST_MARGIN * lately.likely_bytes)


def bound_bytes(counts: Mapping[int, Counts]) -> int | None:
    """Return what nearly all attempts do not exceed; None: that is unknown."""
    if sum(one.attempts for one in counts.values()) < KNOWN_LEAST:
        return None
    found = quantile(counts, SHARE)
    return None if found is None or found.is_least else round(found.value)


def _halved(counts: Counter[int]) -> Counter[int]:
    return Counter(
        {bucket: count // 2 for bucket, count in counts.items() if count > 1}
    )
