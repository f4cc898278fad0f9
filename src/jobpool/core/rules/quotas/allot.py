"""How many jobs of which lane may begin now, and what the other lanes wait for.

All needs of a job are decided together: it begins with all its permits or takes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jobpool.core.rules.quotas.rules import Limit, Use


class LaneState(NamedTuple):
    """An open lane, as a claim has read it."""

    id: int
    pool: str
    kind: str
    rank: int
    """The higher goes first."""
    vtime: float
    """Among the same rank, the lower goes first."""
    uses: tuple[Use, ...]


class BucketState(NamedTuple):
    """A bucket, under its lock."""

    id: int
    limit: Limit
    in_use: int
    """Permits held of its cap."""
    tat_us: int
    block_until_ms: int
    """A service has said so; 0 or past: it has not."""


class Allotment(NamedTuple):
    """What a claim may do with a lane."""

    lane: int
    most: int
    """Jobs that may be leased from it now."""
    begin_within_s: float | None
    """A job must begin within this time of the request, or go back; None: whenever."""
    opens_at_ms: int | None
    """It is blocked until then: that is when to look at it again."""
    blocked_by: int | None
    """It is blocked until this bucket frees something, or its rules change.

    With ``most`` 0, neither `opens_at_ms` nor this, the lane stays open: what there is
    goes to others first, or may not be leased ahead.
    """


def allot(
    lanes: Iterable[LaneState],
    buckets: Mapping[int, BucketState],
    want: int,
    ahead: int,
    now_ms: int,
) -> tuple[Allotment, ...]:
    """Decide; see the module.

    The lanes are of one pool, as `want` is. Another pool's may use the same buckets:
    give `buckets` as the leases that came of the first call have left them.

    Args:
        lanes: in any order.
        buckets: by id, all that the lanes use.
        want: most jobs to lease. Each rank may have as many, since it is not known here
            how many wait in a lane: take the best of what is found.
        ahead: how many of them no slot is free for yet. They get at most half of what
            each bucket has.
        now_ms: the time of the claim.
    """
    raise NotImplementedError
