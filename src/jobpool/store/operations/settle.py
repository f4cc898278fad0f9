"""Settling leases and recording heartbeats, always under the lease's token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from jobpool.core.jobs.job import UNFINISHED, JobState, Progress, Settlement, Start
from jobpool.core.jobs.outcome import Charge, Outcome
from jobpool.store.operations.enqueue import Enqueueing
from jobpool.store.operations.flows.adding import added_by
from jobpool.store.operations.flows.members import Member
from jobpool.store.operations.quotas.permits import PermitKeeping
from jobpool.store.operations.repair import TRIES, Repairing
from jobpool.store.operations.set_apart.misfits import handed_on
from jobpool.store.records.jobs import Receipt
from jobpool.store.statements.integrity import RowRefused, why
from jobpool.store.statements.moment import Moment
from jobpool.store.statements.parameters import (
    CHUNK_JOBS,
    Blobs,
    as_json,
    chunks,
    newest_beats,
)
from jobpool.store.statements.session import Database, OwnSession, Session
from jobpool.store.statements.validation import (
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

_NULL = b"null"
_NO_CHARGE = Charge()
_ENDED = frozenset({Receipt.ACCEPTED, Receipt.COMPLETED, Receipt.HANDED_ON})
"""The lease is over: it holds no permits any more."""


class Settling(PermitKeeping, Repairing, Enqueueing):
    """The part of the store that ends leases and keeps what they report."""

    _database: Database
    _HELD_ELSEWHERE: ClassVar[str | None] = None
    """The query for leases locked by other transactions, where that can happen."""

    @abstractmethod
    def _insert_members(self, session: Session, members: Sequence[Member]) -> None:
        """Store checked members of flows, in order."""

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        """See `Store.settle`."""
        if not settlements:
            return []
        left = TRIES
        while True:
            try:
                return self._settle(settlements)
            except RowRefused:
                repaired = self._repair_rows(settlements)
                settlements = repaired or settlements
                left -= not repaired
                if not left:
                    raise

    def _repair_rows(self, settlements: Sequence[Settlement]) -> list[Settlement]:
        """Repair the jobs' rows, so that every settlement can be written.

        Returns:
            The settlements; a damaged job that would be retried becomes dead instead.
            Empty: no row was damaged.
        """
        ids = {s.id for s in settlements}
        with self._database.writing() as session:
            repaired = self._set_aside(session, ids, held=True)
        if not repaired:
            return []
        damaged = {job_id: one.wrong for job_id, one in repaired.items() if one.decides}
        return [
            set_aside(s, damaged[s.id])
            if s.id in damaged and s.state in UNFINISHED
            else s
            for s in settlements
        ]

    def _settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        receipts = [Receipt.STALE] * len(settlements)
        self._freed = ()
        with self._database.writing() as session:
            now = self._database.moment(session)
            check_new_jobs([s.followup for s in settlements if s.followup], now.ms)
            for settlement in settlements:
                check_added(settlement.added, now.ms)
            for places in _rounds(settlements):
                batch = [settlements[place] for place in places]
                known = self._settle_round(session, batch, now)
                kept = [
                    _output_row(s, now)
                    for s in batch
                    if s.keeps_output and _has_succeeded(s, known)
                ]
                if kept:
                    session.run("keep_outputs", rows=as_json(kept))
                for place, settlement in zip(places, batch, strict=True):
                    receipts[place] = known.get(settlement.id, Receipt.STALE)
            if stale := receipts.count(Receipt.STALE):
                session.run("count_stale", stale=stale)
            ended = [
                s
                for s, receipt in zip(settlements, receipts, strict=True)
                if receipt in _ENDED
            ]
            self._free_permits(session, ended, now.ms)
        return receipts

    def _settle_round(
        self, session: OwnSession, settlements: Sequence[Settlement], now: Moment
    ) -> dict[int, Receipt]:
        """Settle jobs, each named once; return the receipts other than stale."""
        done_at_once = self._succeed(session, settlements, now)
        if len(done_at_once) == len(settlements):
            return done_at_once
        settlements = [s for s in settlements if s.id not in done_at_once]
        known = self._hold(session, settlements)
        won = [s for s in settlements if known.get(s.id) is Receipt.ACCEPTED]
        if any(s.unknown_for_ms is not None for s in won):
            ends = {s.id: s for s in won}
            won = [handed_on(session, s, now.ms) for s in won]
            known |= {s.id: Receipt.HANDED_ON for s in won if s is not ends[s.id]}
        done = [s for s in settlements if known.get(s.id) is Receipt.COMPLETED]
        ended = [
            _attempt_row(s, now)
            for s in won
            if s.outcome is not None and s.outcome is not Outcome.SUCCEEDED
        ]
        if ended:
            session.run("insert_attempts", rows=as_json(ended))
        if won:
            rows, blobs = _settled_rows(won, now)
            session.run("settle_jobs", rows=as_json(rows), blobs=blobs, now_ms=now.ms)
            retried = [s.id for s in won if s.is_charged_retry]
            if retried and self._may_have_budgets:
                session.run("join_retries", ids=as_json(retried))
        if done:
            session.run("note_completed", rows=as_json(_job_row(s, now) for s in done))
        _note_suspects(session, [*won, *done], now.ms)
        self._store_results(session, won)
        hooks = [s.followup for s in won if s.followup]
        if hooks:
            # Never refused for the queue's depth: the settlement would be refused too.
            self._depth.add(session, len(hooks))
            self._insert(session, hooks)
        self._store_added(session, won)
        return done_at_once | known

    def _store_added(self, session: OwnSession, won: Sequence[Settlement]) -> None:
        """Store what members add to their steps; never refused, as hooks are not."""
        adders = [s for s in won if s.added and s.state is JobState.SUCCEEDED]
        if not adders:
            return
        self._depth.add(session, sum(len(s.added) for s in adders))
        members, others = added_by(session, adders)
        for start in range(0, len(members), CHUNK_JOBS):
            self._insert_members(session, members[start : start + CHUNK_JOBS])
        for chunk in chunks(others):
            self._insert(session, chunk)

    def _succeed(
        self, session: OwnSession, settlements: Sequence[Settlement], now: Moment
    ) -> dict[int, Receipt]:
        """Settle plain successes in one statement.

        Returns:
            Receipts of those that it has settled; of the others nothing is known.
        """
        plain = [s for s in settlements if _is_plain(s)]
        done = self._settle_plain(session, plain, now) if plain else ()
        return dict.fromkeys(done, Receipt.ACCEPTED)

    @abstractmethod
    def _settle_plain(
        self, session: OwnSession, plain: Sequence[Settlement], now: Moment
    ) -> Iterable[int]:
        """Settle plain successes, with their results, in one statement.

        Returns:
            The ids that it has settled; the others' leases may still be valid.
        """

    def _hold(
        self, session: Session, settlements: Sequence[Settlement]
    ) -> dict[int, Receipt]:
        """Find which leases are still valid, and lock them until the commit."""
        held = session.rows("hold_leases", rows=as_json(map(_identity, settlements)))
        known = {job_id: Receipt(receipt) for job_id, receipt in held}
        missing = [_identity(s) for s in settlements if s.id not in known]
        if missing and self._HELD_ELSEWHERE:
            for (job_id,) in session.rows(self._HELD_ELSEWHERE, rows=as_json(missing)):
                known[job_id] = Receipt.LATER
        return known

    def _store_results(self, session: Session, accepted: Sequence[Settlement]) -> None:
        """Store results, where `settle_jobs` does not do so itself."""

    def record(self, beats: Sequence[Progress]) -> None:
        """See `Store.record`."""
        if not beats:
            return
        newest = newest_beats(beats)
        blobs = Blobs()
        reported = [
            (one.id, one.token, *blobs.add(one.progress), *blobs.add(one.checkpoint))
            for one in newest
            if one.progress is not None or one.checkpoint is not None
        ]
        seen = [
            (one.id, one.token, fit_memory_bytes(one.rss_bytes), text_of(one.output))
            for one in newest
            if one.rss_bytes is not None or one.output is not None
        ]

        def write() -> None:
            with self._database.writing() as session:
                now_ms = self._database.now_ms(session)
                if reported:
                    session.run(
                        "record_beats",
                        rows=as_json(reported),
                        blobs=blobs.joined(),
                        now_ms=now_ms,
                    )
                if seen:
                    session.run("show_running", rows=as_json(seen), now_ms=now_ms)

        self._with_repair(write, lambda _: {beat.id for beat in beats}, held=True)

    def begin_attempts(self, starts: Sequence[Start]) -> None:
        """See `Store.begin_attempts`."""
        if not starts:
            return

        def write() -> None:
            with self._database.writing() as session:
                now = self._database.moment(session)
                rows = [(*start[:3], now.of(start.began_s)) for start in starts]
                session.run("begin_attempts", rows=as_json(rows))

        self._with_repair(write, lambda _: {job_id for job_id, *_ in starts}, held=True)


def _note_suspects(session: Session, ended: Sequence[Settlement], now_ms: int) -> None:
    """Store which jobs become suspects or misfits, and which no longer are."""
    suspects = [s.id for s in ended if s.suspect]
    cleared = [s.id for s in ended if s.suspect is False]
    fitting = [s.id for s in ended if s.fits]
    if suspects:
        session.run("suspect", ids=as_json(suspects), now_ms=now_ms)
    if cleared:
        session.run("clear_jobs", ids=as_json(cleared))
    if fitting:
        session.run("forget_misfits", ids=as_json(fitting))


def set_aside(s: Settlement, wrong: Sequence[str]) -> Settlement:
    """Return a settlement as dead, of a job whose row was damaged."""
    evidence = msgspec.structs.replace(s.evidence, reason=why(wrong))
    return msgspec.structs.replace(
        s, state=JobState.DEAD, delay_ms=0, evidence=evidence
    )


def _rounds(settlements: Sequence[Settlement]) -> Iterator[list[int]]:
    """Yield the places of settlements in rounds, so that no round names a job twice.

    A statement that names a job twice would apply either settlement; in two rounds the
    second one is stale, as it should be.
    """
    left = list(range(len(settlements)))
    while len({settlements[place].id for place in left}) < len(left):
        seen: set[int] = set()
        this: list[int] = []
        later: list[int] = []
        for place in left:
            job_id = settlements[place].id
            (later if job_id in seen else this).append(place)
            seen.add(job_id)
        yield this
        left = later
    yield left


def _identity(s: Settlement) -> tuple[int, int]:
    return s.id, s.token


def _settled_rows(
    accepted: Sequence[Settlement], now: Moment
) -> tuple[list[tuple[Any, ...]], bytes]:
    """Return rows for `settle_jobs`, and the results that they point into."""
    blobs = Blobs()
    rows = [
        (*_job_row(s, now), *blobs.add(s.result if has_result(s) else None))
        for s in accepted
    ]
    return rows, blobs.joined()


def has_result(s: Settlement) -> bool:
    """Say whether a settlement has a result to store; null is not stored."""
    result = s.result
    return result is not None and result != _NULL and s.state is JobState.SUCCEEDED


def _has_succeeded(s: Settlement, known: Mapping[int, Receipt]) -> bool:
    """Say whether a job has succeeded, by a settlement's receipt."""
    receipt = known.get(s.id)
    has_returned = s.state is JobState.SUCCEEDED and receipt is Receipt.ACCEPTED
    return has_returned or receipt is Receipt.COMPLETED


def _output_row(s: Settlement, now: Moment) -> tuple[Any, ...]:
    output = clean_text(s.evidence.output) or ""
    _, ended_ms = now.of_attempt(s)
    return s.id, kib_of(output), output, ended_ms


def _is_plain(s: Settlement) -> bool:
    """Say whether a success has no charge, no message and no jobs that follow it."""
    evidence = s.evidence
    return (
        s.state is JobState.SUCCEEDED
        and s.outcome is Outcome.SUCCEEDED
        and s.followup is None
        and not s.added
        and s.suspect is None
        and s.charge == _NO_CHARGE
        and evidence.reason is None
        and evidence.error is None
        and evidence.error_class is None
    )


def success_row(s: Settlement, now: Moment) -> tuple[Any, ...]:
    """Return the columns of a plain success, without its result."""
    evidence = s.evidence
    return (
        s.id,
        s.token,
        fit_memory_bytes(evidence.peak_rss_bytes),
        fit_duration_s(evidence.cpu_s),
        fit_duration_s(evidence.duration_s),
        clean_text(evidence.slot),
        *now.of_attempt(s),
    )


def _job_row(s: Settlement, now: Moment) -> tuple[Any, ...]:
    evidence, charge = s.evidence, s.charge
    return (
        s.id,
        s.token,
        s.state,
        s.outcome,
        int(charge.failure),
        int(charge.crash),
        int(charge.interruption),
        int(charge.recovery),
        fit_delay_ms(s.delay_ms),
        clean_text(evidence.reason),
        clean_text(evidence.error_class),
        clean_text(evidence.error),
        fit_memory_bytes(evidence.peak_rss_bytes),
        fit_duration_s(evidence.cpu_s),
        fit_duration_s(evidence.duration_s),
        clean_text(evidence.slot),
        *now.of_attempt(s),
        int(s.snoozed),
        None if s.throttled is None else as_json(s.throttled),
    )


def _attempt_row(s: Settlement, now: Moment) -> tuple[Any, ...]:
    evidence = s.evidence
    return (
        s.id,
        s.token,
        s.outcome,
        clean_text(s.rule),
        clean_text(evidence.reason),
        clean_text(evidence.error_class),
        clean_text(evidence.error),
        clean_text(evidence.traceback),
        fit_code(evidence.signal),
        fit_code(evidence.exit_code),
        fit_memory_bytes(evidence.peak_rss_bytes),
        fit_duration_s(evidence.cpu_s),
        fit_duration_s(evidence.duration_s),
        clean_text(evidence.output),
        clean_text(evidence.stack),
        clean_text(evidence.slot),
        *now.of_attempt(s),
        clean_text(s.app_version),
        clean_text(evidence.memory_trail),
    )
