"""Buckets, and the permits that leases hold of them or have used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from jobpool.core.rules.quotas.breaker import Breaker
from jobpool.core.rules.quotas.window import Window


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of a bucket beside its permits."""

    quota: str
    value: str
    tat_us: int = 0
    """The arrival time of its rate (`core.rules.quotas.gcra`)."""
    block_until_ms: int = 0
    contested: bool = False
    """Jobs were seen waiting for it since it last gave permits back."""
    used_at_ms: int = 0
    breaker: Breaker = Breaker()
    window: Window = Window()
    """Of a retry budget: first attempts, and retries."""


class PermitKey(NamedTuple):
    """Which permit it is."""

    bucket: int
    token: int
    n: int
    """0: taken at the start of the attempt; else the attempt's own number."""


class Permit(msgspec.Struct, frozen=True, gc=False):
    """A permit of a bucket."""

    job_id: int
    run_id: str
    cost: int
    taken_us: int
    """When: `gcra.returned` must know it, if it comes back unused."""


class PermitTable:
    """All permits.

    Attributes:
        of_token: those of a lease.
    """

    def __init__(self) -> None:
        self._rows: dict[PermitKey, Permit] = {}
        self._in_use: Counter[int] = Counter()
        self._of_bucket: defaultdict[int, set[PermitKey]] = defaultdict(set)
        self.of_token: defaultdict[int, set[PermitKey]] = defaultdict(set)

    def __iter__(self) -> Iterator[tuple[PermitKey, Permit]]:
        return iter(self._rows.items())

    def get(self, key: PermitKey, /) -> Permit | None:
        """See `Table.get`."""
        return self._rows.get(key)

    def tokens_of(self, run_id: str) -> list[int]:
        """Return the tokens of a run's leases that have permits, in order."""
        found = (key.token for key, one in self._rows.items() if one.run_id == run_id)
        return sorted(set(found))

    def in_use(self, bucket: int) -> int:
        """Return how many permits of a bucket are in use, by cost."""
        return self._in_use[bucket]

    def holders(self, bucket: int) -> list[int]:
        """Return the ids of the jobs that have permits of a bucket, in order."""
        keys = self._of_bucket.get(bucket, ())
        return sorted({self._rows[key].job_id for key in keys})

    def put(self, key: PermitKey, permit: Permit | None) -> None:
        """See `Table.put`."""
        former = self._rows.pop(key, None)
        if former is not None:
            self._in_use[key.bucket] -= former.cost
            _discard(self._of_bucket, key.bucket, key)
            _discard(self.of_token, key.token, key)
        if permit is not None:
            self._rows[key] = permit
            self._in_use[key.bucket] += permit.cost
            self._of_bucket[key.bucket].add(key)
            self.of_token[key.token].add(key)
        if not self._in_use[key.bucket]:
            del self._in_use[key.bucket]


def _discard(index: dict[int, set[PermitKey]], at: int, key: PermitKey) -> None:
    index[at].discard(key)
    if not index[at]:
        del index[at]
