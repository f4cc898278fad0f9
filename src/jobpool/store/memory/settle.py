"""Settling leases and recording heartbeats, always under the lease's token."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.flow import ENDED_STEPS
from jobpool.core.jobs.job import (
    TIME_MAX_MS,
    Attempt,
    JobState,
    NewJob,
    PastAttempt,
    Progress,
    Settlement,
    Start,
)
from jobpool.core.jobs.outcome import Charge, Outcome
from jobpool.core.rules.lifecycle import TRANSITIONS
from jobpool.errors import JobpoolBug
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.enqueue import Enqueueing, new_row
from jobpool.store.memory.quotas.in_force import in_force
from jobpool.store.memory.quotas.permits import PermitKeeping
from jobpool.store.memory.quotas.shares import give_back
from jobpool.store.memory.set_apart.misfits import MisfitKeeping
from jobpool.store.memory.set_apart.suspects import SuspectKeeping
from jobpool.store.memory.tables.rows import Begun, Ended, Held, Row, Spent, Tried
from jobpool.store.records.jobs import KeptOutput, Receipt
from jobpool.store.statements.moment import Moment
from jobpool.store.statements.validation import (
    COUNT_MAX,
    MEMORY_MAX_BYTES,
    check_added,
    check_new_jobs,
    clean_text,
    fit_code,
    fit_delay_ms,
    fit_duration_s,
    fit_memory_bytes,
    kib_of,
    text_of,
)

_replace = msgspec.structs.replace
_ENDS = frozenset(TRANSITIONS[JobState.LEASED].values()) - {None}
_PENDING, _RUNNABLE = JobState.PENDING, JobState.RUNNABLE
_SUCCEEDED, _SUCCESS = JobState.SUCCEEDED, Outcome.SUCCEEDED
_DURATION_MAX_S = TIME_MAX_MS / 1000
_STALE, _ACCEPTED = Receipt.STALE, Receipt.ACCEPTED


class Settling(Enqueueing, SuspectKeeping, MisfitKeeping, PermitKeeping):
    """The part of the store that ends leases and keeps what they report."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        """See `Store.settle`; no handler can complete a job of this store itself."""
        if not settlements:
            return []
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            followups = [s.followup for s in settlements if s.followup is not None]
            check_new_jobs(followups, now_ms)
            for settlement in settlements:
                check_added(settlement.added, now_ms)
            receipts = [self._settle_one(s, now_ms) for s in settlements]
            if stale := receipts.count(_STALE):
                self._database.count_stale(stale)
        return receipts

    def _settle_one(self, s: Settlement, now_ms: int) -> Receipt:
        row = self._database.jobs.get(s.id)
        held = None if row is None else row.held
        if row is None or held is None or held.token != s.token:
            self._end_permits(s.token)  # Its handler may have completed the job.
            return _STALE
        if s.state not in _ENDS or (
            s.state is _SUCCEEDED and s.outcome is not _SUCCESS
        ):
            raise JobpoolBug(
                f"job {s.id} cannot go from leased to {s.state} by outcome "
                f"{s.outcome}; please report this"
            )
        end, s = s, self._handed_on(row, s, now_ms)
        if s.outcome is None:
            settled = _handed_back(row, held, s, now_ms)
            if s.snoozed:
                settled = _snoozed(settled, s, now_ms)
        else:
            now = Moment(now_ms, self._clock.boottime_s())
            settled = _ended(row, held, s, now, self._version_of(s, held))
        self._database.put_job(row, settled)
        self._end_lease(row, s, now_ms)
        if s.keeps_output and s.state is _SUCCEEDED:
            self._keep_output(settled, s)
        if s.suspect is not None:
            self._suspect(s.id, suspect=s.suspect)
        if s.followup is not None:
            # Never refused for the queue's depth: the settlement would be refused too.
            self._insert([s.followup], now_ms)
        if s.added and s.state is _SUCCEEDED:
            self._store_added(settled, s.added, now_ms)
        if s.fits:
            self._forget_misfits([s.id])
        return _ACCEPTED if s is end else Receipt.HANDED_ON

    def _store_added(self, adder: Row, jobs: Sequence[NewJob], now_ms: int) -> None:
        """Store what a member adds to its step, as `operations.flows.adding` says."""
        if adder.step is None:
            self._insert(jobs, now_ms)
            return
        has_ended = self._database.steps[adder.step].state in ENDED_STEPS
        for job in jobs:
            row = new_row(self._database.jobs.take_id(), job, now_ms)
            state = row.state if has_ended else JobState.WAITING
            member = _replace(
                row,
                state=state,
                step=adder.step,
                generation=adder.generation,
                added_by=adder.id,
            )
            self._database.put_job(None, member)

    def _end_lease(self, row: Row, s: Settlement, now_ms: int) -> None:
        """Let go what the lease had of quotas and shares."""
        self._end_permits(s.token, unbegun=s.unbegun)
        if s.unbegun:
            give_back(self._database, in_force(self._database, now_ms), row)
        if s.throttle is not None:
            self._block(s.throttle)

    def _keep_output(self, row: Row, s: Settlement) -> None:
        output = clean_text(s.evidence.output) or ""
        ended_ms = row.finished_at_ms or 0
        kept = KeptOutput(row.attempt, ended_ms, output, None)
        self._database.keep_output(row.id, kib_of(output), kept)

    def record(self, beats: Sequence[Progress]) -> None:
        """See `Store.record`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            for beat in beats:
                row = self._leased(beat.id, beat.token)
                if row is None or row.held is None:
                    continue
                begun, checkpoint = row.begun, row.checkpoint
                if beat.progress is not None or beat.checkpoint is not None:
                    begun = _replace(begun, last_heartbeat_at_ms=now_ms)
                if beat.progress is not None:
                    begun = _replace(begun, progress=beat.progress)
                if beat.checkpoint is not None:
                    checkpoint = beat.checkpoint
                held = row.held
                if beat.rss_bytes is not None:
                    held = _replace(held, rss_bytes=fit_memory_bytes(beat.rss_bytes))
                if beat.output is not None:
                    held = _replace(held, output=text_of(beat.output))
                self._database.put_job(
                    row, _replace(row, begun=begun, checkpoint=checkpoint, held=held)
                )

    def begin_attempts(self, starts: Sequence[Start]) -> None:
        """See `Store.begin_attempts`."""
        with self._session.writing:
            now = Moment(self._clock.utc_ms(), self._clock.boottime_s())
            for start in starts:
                row = self._leased(start.id, start.token)
                if row is not None and row.held is not None:
                    began_ms = max(now.of(start.began_s), row.held.since_ms)
                    begun = _replace(row.begun, started_at_ms=began_ms, slot=start.slot)
                    self._database.put_job(row, _replace(row, begun=begun))

    def _version_of(self, s: Settlement, held: Held) -> str | None:
        """Return the version of the application in which an attempt did not succeed."""
        if s.outcome is _SUCCESS or s.app_version is not None:
            return s.app_version
        run = self._database.runs.get(held.run_id)
        return None if run is None else run.app_version

    def _leased(self, job_id: int, token: int) -> Row | None:
        """Return a job that is leased under this token."""
        row = self._database.jobs.get(job_id)
        if row is None or row.held is None or row.held.token != token:
            return None
        return row


def _handed_back(row: Row, held: Held, s: Settlement, now_ms: int) -> Row:
    """Return a job whose attempt does not count and leaves no trace."""
    begun, slot = row.begun, s.evidence.slot
    if slot is not None:
        begun = _replace(begun, slot=clean_text(slot))
    moved = _moved(row, held, s, now_ms, now_ms)
    if (reason := s.evidence.reason) is not None:
        moved = _replace(moved, ended=_replace(row.ended, reason=clean_text(reason)))
    handed_back: Row = _replace(moved, attempt=max(0, row.attempt - 1), begun=begun)
    return handed_back


def _snoozed(row: Row, s: Settlement, now_ms: int) -> Row:
    """Return a handed back job that was snoozed by its attempt."""
    since_ms = row.snoozed_since_ms
    snoozed: Row = _replace(
        row,
        throttled=s.throttled or row.throttled,
        snoozes=min(row.snoozes + 1, COUNT_MAX),
        snoozed_since_ms=now_ms if since_ms is None else since_ms,
    )
    return snoozed


def _ended(
    row: Row, held: Held, s: Settlement, now: Moment, app_version: str | None
) -> Row:
    """Return a job after an attempt, with its charges and evidence."""
    evidence, begun = s.evidence, row.begun
    began_ms, ended_ms = now.of_attempt(s)
    if began_ms is not None:
        began_ms = max(began_ms, held.since_ms)
    else:
        began_ms = begun.started_at_ms
    begun = Begun(
        begun.slot if evidence.slot is None else clean_text(evidence.slot),
        held.since_ms if began_ms is None else began_ms,
        begun.last_heartbeat_at_ms,
        begun.progress,
    )
    ended = Ended(
        outcome=s.outcome,
        reason=clean_text(evidence.reason),
        error_class=clean_text(evidence.error_class),
        error=clean_text(evidence.error),
        duration_s=_duration_s(evidence.duration_s),
        cpu_s=_duration_s(evidence.cpu_s),
        peak_rss_bytes=_memory_bytes(evidence.peak_rss_bytes),
    )
    moved: Row = _replace(
        _moved(row, held, s, now.ms, ended_ms),
        begun=begun,
        ended=ended,
        spent=_spent(row.spent, s.charge) if any(s.charge) else row.spent,
        result=s.result if s.state is _SUCCEEDED and s.result != b"null" else None,
    )
    if row.throttled is not None:
        moved = _replace(moved, throttled=None)
    if s.outcome is _SUCCESS:
        return moved
    if row.snoozes and s.state in (_PENDING, _RUNNABLE):
        moved = _replace(moved, snoozes=0, snoozed_since_ms=None)
    tried = _tried(moved, held, s, ended_ms, app_version)
    return _replace(moved, tried=(*row.tried, tried))


def _moved(row: Row, held: Held, s: Settlement, now_ms: int, ended_ms: int) -> Row:
    """Return a job in the state that its lease ends in.

    If its cancellation was requested it does not wait for another attempt.
    """
    state, run_at_ms = s.state, row.run_at_ms
    finished_at_ms: int | None = ended_ms
    if state is _PENDING:
        run_at_ms = min(now_ms + fit_delay_ms(s.delay_ms), TIME_MAX_MS)
    if state is _PENDING or state is _RUNNABLE:
        if held.cancel_requested:
            state = JobState.CANCELED
        else:
            finished_at_ms = None
    moved: Row = _replace(
        row,
        state=state,
        finished_at_ms=finished_at_ms,
        run_at_ms=run_at_ms,
        held=None,
    )
    return moved


def _spent(spent: Spent, charge: Charge) -> Spent:
    return Spent(
        failures=min(spent.failures + charge.failure, COUNT_MAX),
        crashes=min(spent.crashes + charge.crash, COUNT_MAX),
        interruptions=min(spent.interruptions + charge.interruption, COUNT_MAX),
        recoveries=min(spent.recoveries + charge.recovery, COUNT_MAX),
    )


# Nearly all values are valid: checking that first avoids the slower clamping.
def _duration_s(value: float | None) -> float | None:
    if value is None or (type(value) is float and 0.0 <= value <= _DURATION_MAX_S):
        return value
    return fit_duration_s(value)


def _memory_bytes(value: int | None) -> int | None:
    if value is None or (type(value) is int and 0 <= value <= MEMORY_MAX_BYTES):
        return value
    return fit_memory_bytes(value)


def _tried(
    row: Row, held: Held, s: Settlement, ended_ms: int, app_version: str | None
) -> Tried:
    """Return the record of an attempt that did not succeed.

    Args:
        row: the job after it.
        held: its lease.
        s: how it ended.
        ended_ms: when.
        app_version: of the application that ran it.
    """
    evidence, begun, ended = s.evidence, row.begun, row.ended
    if ended.outcome is None or begun.started_at_ms is None:
        raise JobpoolBug(f"job {row.id} ended an attempt without one; please report")
    shown = Attempt(
        attempt=row.attempt,
        token=held.token,
        outcome=ended.outcome,
        reason=ended.reason,
        error_class=ended.error_class,
        error=ended.error,
        traceback=clean_text(evidence.traceback),
        signal=fit_code(evidence.signal),
        exit_code=fit_code(evidence.exit_code),
        peak_rss_bytes=ended.peak_rss_bytes,
        cpu_s=ended.cpu_s,
        duration_s=ended.duration_s,
        output=clean_text(evidence.output),
        stack=clean_text(evidence.stack),
        supervisor=held.run_id,
        slot=begun.slot,
        started_at_ms=begun.started_at_ms,
        finished_at_ms=ended_ms,
        rule=clean_text(s.rule),
        app_version=clean_text(app_version),
        memory_trail=clean_text(evidence.memory_trail),
    )
    return Tried(shown, PastAttempt(ended.outcome, shown.rule, ended_ms))
