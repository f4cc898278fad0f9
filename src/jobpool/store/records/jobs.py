"""Records of leases and of ended attempts."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from jobpool.core.jobs.job import JobState, Lease


class Receipt(IntEnum):
    """What became of one settlement."""

    STALE = 0
    """Its token was superseded; nothing was changed, and it was counted."""
    ACCEPTED = 1
    """It is written."""
    COMPLETED = 2
    """The handler's own transaction had completed the job under this token: that
    stands, and nothing was charged; only the attempt's figures were added."""
    LATER = 3
    """Another open transaction holds the job; nothing was changed: settle again."""
    HANDED_ON = 4
    """The job was handed back instead: its arguments may fit another supervisor."""


class KeptOutput(msgspec.Struct, frozen=True):
    """What a job's successful attempt has written."""

    attempt: int
    at_ms: int
    """When the attempt ended."""
    output: str | None
    """Its tail; None: it was dropped."""
    dropped_at_ms: int | None
    """When, because newer outputs left no room for it."""


class LeaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `Store.lease` granted."""

    leases: tuple[Lease, ...] = ()
    next_due_in_s: float | None = None
    """Seconds until the next pending job falls due; None: there is none. 0 when another
    call would find more, or when other transactions hold all runnable jobs."""
    suspects_wait: bool = False
    """Due suspects of these kinds were skipped: it is not their turn yet."""
    lapsed: bool = False
    """The run's own lease has run out: nothing was searched for."""
    outdated: bool = False
    """The run's format is below the store's least: nothing was searched for, and the
    run gets no leases any more."""
    opened: frozenset[str] = frozenset()
    """The pools in which this call has opened members of flows."""


class HeldBack(msgspec.Struct, frozen=True):
    """Jobs are due that quotas hold back."""

    opens_in_s: float | None
    """Until a time lets one of them begin, such as a rate's; 0: another lease may grant
    one; None: no time does."""


class SuspectRow(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An unfinished job that may have killed its host."""

    id: int
    kind: str
    pool: str
    state: JobState
    since_ms: int


class MisfitRow(msgspec.Struct, frozen=True, kw_only=True):
    """Unfinished jobs of one kind whose arguments did not fit some handler."""

    pool: str
    kind: str
    jobs: int
    since_ms: int
