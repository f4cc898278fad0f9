"""Jobs as the memory store holds them, and the records that are made of them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import (
    HISTORY_MAX,
    Attempt,
    Job,
    JobState,
    Lease,
    NewJob,
    PastAttempt,
    Throttled,
)
from jobpool.core.jobs.outcome import Outcome


class Tried(NamedTuple):
    """An attempt that did not succeed, for people and for the retry policy."""

    shown: Attempt
    past: PastAttempt


# Rows and their parts are never changed, only replaced: a row is a snapshot of the job,
# and a change is undone by putting the former row back. They contain no cycles, so the
# garbage collector need not walk over 100,000 of them again and again.
class Spent(msgspec.Struct, frozen=True, gc=False):
    """What was charged since the last reset."""

    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    recoveries: int = 0


class Held(msgspec.Struct, frozen=True, gc=False):
    """The lease of a leased job."""

    token: int
    run_id: str
    since_ms: int
    cancel_requested: bool = False
    rss_bytes: int | None = None
    output: str | None = None
    """What the attempt has written so far."""


class Begun(msgspec.Struct, frozen=True, gc=False):
    """The attempt that runs or, once it is over, ran last."""

    slot: str | None = None
    started_at_ms: int | None = None
    last_heartbeat_at_ms: int | None = None
    progress: bytes | None = None


class Ended(msgspec.Struct, frozen=True, gc=False):
    """How the last attempt ended, and the reason for the job's state."""

    outcome: Outcome | None = None
    reason: str | None = None
    error_class: str | None = None
    error: str | None = None
    duration_s: float | None = None
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None


class Shared(msgspec.Struct, frozen=True, gc=False):
    """How a job shares its unique text, as far as others than it are concerned."""

    text: str
    waits: bool = False
    """Another job has it: this one's own row is without, and gets it afterwards."""
    until_start: bool = False
    replacements: int = 0
    postponements: int = 0


NOTHING_SPENT = Spent()
NOT_BEGUN = Begun()
NOT_ENDED = Ended()


class Row(msgspec.Struct, frozen=True, gc=False):
    """A job. Fields that `core.jobs.job.Job` also has mean the same."""

    id: int
    new: NewJob
    """The job as enqueued: kind, pool, payload, options."""
    state: JobState
    created_at_ms: int
    run_at_ms: int
    expires_at_ms: int | None
    finished_at_ms: int | None = None
    attempt: int = 0
    reset_attempt: int = 0
    """Attempts before an operator's last reset."""
    spent: Spent = NOTHING_SPENT
    held: Held | None = None
    begun: Begun = NOT_BEGUN
    ended: Ended = NOT_ENDED
    checkpoint: bytes | None = None
    result: bytes | None = None
    """None: null, if the job has succeeded."""
    tried: tuple[Tried, ...] = ()
    """Oldest first."""
    snoozes: int = 0
    snoozed_since_ms: int | None = None
    throttled: Throttled | None = None
    replays: int | None = None
    replaced_by: int | None = None
    tick: int | None = None
    step: int | None = None
    """The row of its step, if it is a member of a flow."""
    generation: int = 1
    """Its flow's, when this row was made."""
    added_by: int | None = None
    """The member that has added it to their step while it ran."""
    shared: Shared | None = None

    def is_late(self, now_ms: int) -> bool:
        """Say whether it has expired before its first attempt."""
        expires_at_ms = self.expires_at_ms
        return (
            expires_at_ms is not None and expires_at_ms <= now_ms and not self.attempt
        )


def lease_from(row: Row, held: Held) -> Lease:
    """Return the lease of a leased job."""
    new = row.new
    # In two steps: Python builds a dict before a call with more than 15 keywords.
    lease = Lease(
        id=row.id,
        token=held.token,
        kind=new.kind,
        pool=new.pool,
        attempt=row.attempt,
        payload=new.payload,
        checkpoint=row.checkpoint,
        max_attempts=new.max_attempts,
        timeout_s=new.timeout_s,
        memory_bytes=new.memory_bytes,
        leased_at_ms=held.since_ms,
        expires_at_ms=row.expires_at_ms,
        priority=new.priority,
        key=new.key,
        tenant=new.tenant,
        codec=new.codec,
        due_ms=row.run_at_ms,
    )
    if row.snoozes:
        lease = msgspec.structs.replace(
            lease, snoozes=row.snoozes, snoozed_since_ms=row.snoozed_since_ms
        )
    if row.throttled is not None:
        throttles, since_ms = row.throttled
        lease = msgspec.structs.replace(
            lease, throttles=throttles, throttled_since_ms=since_ms
        )
    if row.step is not None:
        lease = msgspec.structs.replace(lease, step=row.step)
    if new.trace is not None:
        lease = msgspec.structs.replace(lease, trace=new.trace)
    if row.attempt == 1:
        return lease
    spent = row.spent
    return msgspec.structs.replace(
        lease,
        failures=spent.failures,
        crashes=spent.crashes,
        interruptions=spent.interruptions,
        recoveries=spent.recoveries,
        history=_history(row),
    )


def _history(row: Row) -> tuple[PastAttempt, ...]:
    past = [
        tried.past for tried in row.tried if tried.shown.attempt > row.reset_attempt
    ]
    older, newest = past[:-HISTORY_MAX], past[-HISTORY_MAX:]
    first = {one.rule: one for one in reversed(older) if one.rule is not None}
    kept = [one for one in older if first.get(one.rule or "") is one]
    return (*kept, *newest)


def job_from(
    row: Row,
    lease_until_ms: int | None,
    follows: int | None = None,
    followed_by: int | None = None,
) -> Job:
    """Return the record of a job.

    Args:
        row: the job.
        lease_until_ms: the end of its supervisor's leases, if it has one.
        follows: who has the unique text that it waits for.
        followed_by: who waits for its own.
    """
    new, spent, held = row.new, row.spent, row.held
    begun, ended = row.begun, row.ended
    result = None
    if row.state is JobState.SUCCEEDED:
        result = b"null" if row.result is None else row.result
    job = Job(
        id=row.id,
        kind=new.kind,
        pool=new.pool,
        state=row.state,
        priority=new.priority,
        key=new.key,
        unique=new.unique,
        tenant=new.tenant,
        attempt=row.attempt,
        max_attempts=new.max_attempts,
        failures=spent.failures,
        crashes=spent.crashes,
        interruptions=spent.interruptions,
        recoveries=spent.recoveries,
        timeout_s=new.timeout_s,
        memory_bytes=new.memory_bytes,
        outcome=ended.outcome,
        reason=ended.reason,
        error_class=ended.error_class,
        error=ended.error,
        result=result,
        progress=begun.progress,
        checkpoint=row.checkpoint,
        created_at_ms=row.created_at_ms,
        run_at_ms=row.run_at_ms,
        expires_at_ms=row.expires_at_ms,
        started_at_ms=begun.started_at_ms,
        finished_at_ms=row.finished_at_ms,
        last_heartbeat_at_ms=begun.last_heartbeat_at_ms,
        lease_until_ms=lease_until_ms,
        cancel_requested=held is not None and held.cancel_requested,
        supervisor=None if held is None else held.run_id,
        slot=begun.slot,
        duration_s=ended.duration_s,
        cpu_s=ended.cpu_s,
        peak_rss_bytes=ended.peak_rss_bytes,
        snoozes=row.snoozes,
        snoozed_since_ms=row.snoozed_since_ms,
        rss_bytes=None if held is None else held.rss_bytes,
        replays=row.replays,
        replaced_by=row.replaced_by,
        codec=new.codec,
        throttles=0 if row.throttled is None else row.throttled.times,
        followed_by=followed_by,
    )
    if (shared := row.shared) is None:
        return job
    return msgspec.structs.replace(
        job,
        unique=new.unique or shared.text,
        until_start=shared.until_start,
        replacements=shared.replacements,
        postponements=shared.postponements,
        follows=follows,
    )


def revived(
    row: Row, state: JobState, now_ms: int, memory_bytes: int | None = None
) -> Row:
    """Return a job with fresh counters, due at *now_ms*, perhaps with a new limit."""
    new = row.new
    if memory_bytes is not None:
        new = msgspec.structs.replace(new, memory_bytes=memory_bytes)
    fresh: Row = msgspec.structs.replace(
        row,
        new=new,
        state=state,
        run_at_ms=now_ms,
        finished_at_ms=None,
        expires_at_ms=None,
        spent=NOTHING_SPENT,
        reset_attempt=row.attempt,
        snoozes=0,
        snoozed_since_ms=None,
        throttled=None,
    )
    return fresh
