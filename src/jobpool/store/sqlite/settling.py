"""The ends of leases, and signs of life: nothing without the right token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jobpool.core.job import JobState, Progress, Settlement
from jobpool.core.outcome import Outcome
from jobpool.store.batching import Blobs, as_json
from jobpool.store.checking import (
    check_new_jobs,
    clean_text,
    fit_code,
    fit_delay_ms,
    fit_duration_s,
    fit_memory_bytes,
)
from jobpool.store.sqlite.database import Database
from jobpool.store.sqlite.producing import insert
from jobpool.store.sqlite.session import Session

_NULL = b"null"


class Settling:
    """The part of the store that ends leases and keeps what they report."""

    _database: Database

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """See `Store.settle`."""
        now_ms = self._database.clock.utc_ms()
        check_new_jobs([s.followup for s in settlements if s.followup], now_ms)
        accepted = [False] * len(settlements)
        if not settlements:
            return accepted
        with self._database.writing() as session:
            for places in _rounds(settlements):
                batch = [settlements[place] for place in places]
                won = _settle_round(session, batch, now_ms)
                for place, settlement in zip(places, batch, strict=True):
                    accepted[place] = settlement.id in won
            if stale := accepted.count(False):
                session.run("count_stale", stale=stale)
        return accepted

    def record(self, beats: Sequence[Progress]) -> None:
        """See `Store.record`."""
        if not beats:
            return
        newest: dict[tuple[int, int], tuple[bytes | None, bytes | None]] = {}
        for beat in beats:
            progress, checkpoint = newest.get((beat.id, beat.token), (None, None))
            newest[beat.id, beat.token] = (
                progress if beat.progress is None else beat.progress,
                checkpoint if beat.checkpoint is None else beat.checkpoint,
            )
        blobs = Blobs()
        rows = [
            (*lease, *blobs.add(progress), *blobs.add(checkpoint))
            for lease, (progress, checkpoint) in newest.items()
        ]
        with self._database.writing() as session:
            session.run(
                "record_beats",
                rows=as_json(rows),
                blobs=blobs.joined(),
                now_ms=self._database.clock.utc_ms(),
            )

    def begin_attempts(self, starts: Sequence[tuple[int, int, str]]) -> None:
        """See `Store.begin_attempts`."""
        if not starts:
            return
        with self._database.writing() as session:
            session.run(
                "begin_attempts",
                rows=as_json(starts),
                now_ms=self._database.clock.utc_ms(),
            )


def _rounds(settlements: Sequence[Settlement]) -> Iterator[list[int]]:
    """Yield the places of settlements so that no round names a job twice.

    A statement that met a job twice would settle it by either; one after another,
    the second one is stale, as it should be.
    """
    left = list(range(len(settlements)))
    while left:
        seen: set[int] = set()
        this: list[int] = []
        later: list[int] = []
        for place in left:
            job_id = settlements[place].id
            (later if job_id in seen else this).append(place)
            seen.add(job_id)
        yield this
        left = later


def _settle_round(
    session: Session, settlements: Sequence[Settlement], now_ms: int
) -> set[int]:
    """Settle jobs, each named once; return the ids of those accepted."""
    ended = [
        _attempt_row(s)
        for s in settlements
        if s.outcome is not None and s.outcome is not Outcome.SUCCEEDED
    ]
    if ended:
        session.run("insert_attempts", rows=as_json(ended), now_ms=now_ms)
    rows = as_json([_job_row(s) for s in settlements])
    won = {
        job_id for (job_id,) in session.rows("settle_jobs", rows=rows, now_ms=now_ms)
    }
    _store_results(session, [s for s in settlements if s.id in won])
    hooks = [s.followup for s in settlements if s.followup and s.id in won]
    if hooks:
        # Never refused for the depth of the queue: the settlement would be, too.
        session.run("add_room", jobs=len(hooks))
        insert(session, hooks, now_ms)
    return won


def _store_results(session: Session, accepted: Sequence[Settlement]) -> None:
    blobs = Blobs()
    rows = [
        (s.id, *blobs.add(s.result))
        for s in accepted
        if s.state is JobState.SUCCEEDED and s.result not in (None, _NULL)
    ]
    if rows:
        session.run("insert_results", rows=as_json(rows), blobs=blobs.joined())


def _job_row(s: Settlement) -> tuple[Any, ...]:
    evidence, charge = s.evidence, s.charge
    return (
        s.id,
        s.token,
        s.state,
        s.outcome,
        charge.failure,
        charge.crash,
        charge.interruption,
        charge.recovery,
        fit_delay_ms(s.delay_ms),
        clean_text(evidence.reason),
        clean_text(evidence.error_class),
        clean_text(evidence.error),
        fit_memory_bytes(evidence.peak_rss_bytes),
        fit_duration_s(evidence.cpu_s),
        fit_duration_s(evidence.duration_s),
        clean_text(evidence.slot),
    )


def _attempt_row(s: Settlement) -> tuple[Any, ...]:
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
    )
