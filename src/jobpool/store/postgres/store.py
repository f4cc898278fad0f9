"""PostgresStore: the whole Store protocol on one schema of a PostgreSQL database."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import Enqueued, JobState, NewJob, Settlement
from jobpool.core.jobs.uniform_batch import payloads_of
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.repairs.restoring import TOKEN_BITS
from jobpool.core.rules.run_report import StoreReport
from jobpool.errors import StoreError
from jobpool.store.contract.watermark import Watermark
from jobpool.store.operations.enqueue import job_rows, stamp_of
from jobpool.store.operations.flows.keeping import FlowKeeping
from jobpool.store.operations.flows.members import Member, member_rows
from jobpool.store.operations.flows.rows import Contested
from jobpool.store.operations.lease import Leasing
from jobpool.store.operations.operators.alerting import Alerting
from jobpool.store.operations.operators.erase import Erasing
from jobpool.store.operations.operators.operate import Operating
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.operations.quotas.lanes import ClaimMemory
from jobpool.store.operations.quotas.setting import QuotaSetting
from jobpool.store.operations.runs import (
    RunKeeping,
    has_ended,
    position_from,
    renewal,
)
from jobpool.store.operations.schedules.keeping import ScheduleKeeping
from jobpool.store.operations.set_apart.suspects import SuspectKeeping
from jobpool.store.operations.settle import Settling, has_result, success_row
from jobpool.store.postgres.caller_connection import caller_transaction, joined
from jobpool.store.postgres.capacity import capacity
from jobpool.store.postgres.connection.database import Database
from jobpool.store.postgres.connection.run_root import run_root_of
from jobpool.store.postgres.connection.session import Session as OwnSession
from jobpool.store.postgres.connection.url import read_address
from jobpool.store.postgres.health import concerns, describe, wipe
from jobpool.store.postgres.queue_depth import DepthGuard
from jobpool.store.records.runs import CapacityFact, Renewal
from jobpool.store.statements.moment import Moment
from jobpool.store.statements.parameters import Blobs, as_json
from jobpool.store.statements.session import OwnSession as WritingSession
from jobpool.store.statements.session import Query, Row, Session

PATIENCE_S = 30.0
WAKES_PER_S = 20.0
"""How often a process wakes supervisors at most: NOTIFY makes all commits of the
database wait for each other. A supervisor that was woken also polls a few times, at
growing intervals."""
WAKES_AT_ONCE = 20
_LAPSED_KEPT_MS = 30 * 86_400_000
"""A run whose leases ran out this long ago is taken to be gone."""


class RateLimit:
    """A token bucket.

    Args:
        per_s: the rate that is allowed in the long run.
        at_once: the burst that is allowed after a pause.
    """

    def __init__(self, per_s: float, at_once: int) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._left = float(at_once)
        self._taken_s = float("-inf")

    def take(self, now_s: float) -> bool:
        """Say whether one more is allowed now, and if so count it.

        Args:
            now_s: monotonic time.
        """
        gained = (now_s - self._taken_s) * self._per_s
        left = min(self._left + gained, float(self._at_once))
        if left < 1:
            return False
        self._left = left - 1
        self._taken_s = now_s
        return True


class PostgresStore(
    FlowKeeping,
    Leasing,
    Settling,
    RunKeeping,
    SuspectKeeping,
    ScheduleKeeping,
    QuotaSetting,
    Operating,
    Erasing,
    Alerting,
):
    """A store that several hosts share. Thread-safe; reconnects after a fork."""

    _depth: DepthGuard

    _DELETIONS = (
        "delete_outputs",
        "delete_attempts",
        "delete_debounced",
        "delete_jobs",
    )
    _ERASURES = (
        "delete_attempts",
        "delete_outputs",
        "delete_running",
        "delete_debounced",
    )
    _HELD_ELSEWHERE = "held_elsewhere"
    _LOCK_RUN = "lock_run"
    _LOCK_FORMATS = "lock_formats"
    _CONTESTED = Contested("lock_flows", "missed_members")
    _HOLD_FLOW = "wait_for_flow"
    _LOCK_MEMBERS = "lock_members"
    _WRITES_BESIDE = True
    _LEASES_LAPSE = True
    _LOCK_GONE = "lock_gone_runs"
    _END_GONE = "end_unaware"
    _LOCK_JOBS = "lock_jobs"
    _LOCK_FLOWS_OF = "wait_for_flows_of"
    _LOCK_TEXTS = "lock_texts"
    _HOLD_JOBS = "hold_jobs"
    _LOCK_SUSPECTS = "lock_suspects"
    _LOCK_PUBLISHED = "lock_published"
    _HOLD_RETRIES = "hold_retries"

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None,
        create: bool,
        admission: Admission,
        patience_s: float = PATIENCE_S,
        reader: bool = False,
    ) -> None:
        self._depth = DepthGuard(admission.stored_max)
        self._entrance = Entrance(admission, (clock or SystemClock()).monotonic_s)
        self._server = Database(read_address(url), clock, patience_s, reader=reader)
        self._database = self._server
        self._wake_limit = RateLimit(WAKES_PER_S, WAKES_AT_ONCE)
        self._seen: str | None = None
        self._noted = []
        self._claims = ClaimMemory()
        self._listening: object = None
        """The connection that listens; a new one does not until LISTEN."""
        try:
            self._server.start(create=create)
        except BaseException:
            self._server.close()
            raise

    @property
    def url(self) -> str:
        """See `Store.url`."""
        return self._server.address.shown

    @property
    def one_host(self) -> bool:
        """See `Store.one_host`: a server can be reached from anywhere."""
        return False

    @property
    def run_root(self) -> Path:
        """See `Store.run_root`."""
        return run_root_of(self._server.store_id, os.environ)

    def interrupt(self) -> None:
        """See `Store.interrupt`."""
        self._server.interrupt()

    def close(self) -> None:
        """See `Store.close`."""
        self._server.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Store.transaction`."""
        with self._server.writing():
            yield

    @contextmanager
    def caller_transaction(self, connection: Any) -> Iterator[None]:
        """See `Store.caller_transaction`."""
        with caller_transaction(self._server, connection):
            yield
        self.wake()

    def renew(
        self,
        run_id: str,
        ttl_s: float,
        *,
        anew: bool = False,
        known: Watermark | None = None,
    ) -> Renewal:
        """See `Store.renew`."""
        if self._server.is_writing:
            return super().renew(run_id, ttl_s, anew=anew, known=known)
        mark = None if known is None else known.mark()
        with self._server.reading() as session:
            found = session.rows(
                "renew_at_once",
                run_id=run_id,
                ttl_ms=round(ttl_s * 1000),
                now_ms=self._server.set_now_ms,
                anew=anew,
                renewals=mark.renewals if mark else 0,
                tokens=mark.token >> TOKEN_BITS if mark else 0,
                restores=known.restores if known else None,
            )
            if not found:
                if mark is not None:
                    self._compare(session, mark)
                has_ended(session, run_id)  # Refuses a run that is unknown here.
                return Renewal.ENDED
            ((is_held, is_outdated, *position),) = found
            if mark is not None:
                seen = position_from(*position)
                mark.compare(seen, session.place)
                mark.known.renewals = seen.renewals + 1
        return renewal(is_held=is_held, anew=anew, is_outdated=bool(is_outdated))

    def changed(self) -> bool:
        """See `Store.changed`: any commit in the cluster counts, even our own."""
        with self._server.reading() as session:
            snapshot: str = session.value("snapshot")
        is_new = snapshot != self._seen
        self._seen = snapshot
        return is_new

    def store_part(self, settlement: Settlement) -> bool:
        """See `Store.store_part`: no other commit waits while a result is written."""
        del settlement
        return False

    def tidy(self, *, waited_for: bool = False) -> None:
        """See `Store.tidy`: the server does its own upkeep."""
        del waited_for

    def wake(self) -> None:
        """See `Store.wake`: a hint; failing to send it is no error."""
        if self._server.is_writing or not self._wake_limit.take(time.monotonic()):
            return
        try:
            with self._server.reading() as session:
                session.run("wake")
        except StoreError:
            return  # Supervisors poll.

    @contextmanager
    def _waking(self) -> Iterator[Session]:
        """See `Enqueueing._waking`: the NOTIFY is sent along with the commit."""
        wakes = not self._server.is_writing and self._wake_limit.take(time.monotonic())
        with self._server.writing(wakes=wakes) as session:
            yield session

    def wait_for_wake(self, timeout_s: float) -> bool:
        """See `SharedStore.hear`."""
        with self._server.reading() as session:
            if self._server.is_pooled:
                threading.Event().wait(timeout_s)
                return False
            connection = session.connection
            if self._listening is not connection:
                session.run("listen")
                self._listening = connection
                return True  # An earlier wake-up was missed: check once.
            return self._server.wait_for_notification(session, timeout_s)

    def wipe(self, *, rewrite: bool = False) -> list[str]:
        """See `Store.wipe`: VACUUM; with *rewrite* VACUUM (FULL)."""
        return wipe(self._server, rewrite=rewrite)

    def concerns(self) -> list[str]:
        """See `Store.concerns`."""
        with self._server.reading() as session:
            return concerns(session)

    def load(self) -> StoreReport:
        """See `Store.load`."""
        with self._database.reading() as session:
            ((waits, connections, most),) = session.rows("load")
        return StoreReport(
            lock_waits=waits, connections=connections, connections_max=most
        )

    def capacity(self, memory_bytes: int) -> list[CapacityFact]:
        """See `Store.capacity`; the server's memory is not this machine's."""
        del memory_bytes
        kinds = defaultdict[str, list[str]](list)
        for record in self.kinds():
            kinds[record.pool].append(record.kind)
        return list(capacity(self._server, lambda: self.due(kinds, 1)))

    def describe(self) -> dict[str, str]:
        """See `Store.describe`."""
        with self._server.reading() as session:
            return describe(session, is_pooled=self._server.is_pooled)

    def prune(self, retention: Retention, limit: int = 1000) -> int:
        """See `Store.prune`; also ends runs that have been presumed dead for long."""
        with self._server.writing() as session:
            now_ms = self._server.now_ms(session)
            session.run(
                "end_lapsed_runs", now_ms=now_ms, before_ms=now_ms - _LAPSED_KEPT_MS
            )
            return super().prune(retention, limit)

    def _joined(self, connection: Any) -> AbstractContextManager[Session]:
        return joined(self._server, connection)

    def _admit(self, session: Session, jobs: Sequence[NewJob]) -> list[Enqueued | None]:
        """See `Enqueueing._admit`; in one round trip, if possible."""
        if (
            len(jobs) == 1
            and isinstance(session, OwnSession)
            and self._depth.may_check_late(1)
        ):
            insert = self._insert_query(session, *jobs)
            ((room,),), stored = session.ask(self._depth.room_query, insert)
            self._depth.admit(session, 1, room, len(stored))
            return [_enqueued(stored)]
        return super()._admit(session, jobs)

    def _insert(
        self, session: Session, jobs: Sequence[NewJob]
    ) -> list[Enqueued | None]:
        if len(jobs) == 1:
            name, parameters = self._insert_query(session, *jobs)
            return [_enqueued(session.rows(name, **parameters))]
        now_ms = self._server.now_ms(session)
        rows, states = job_rows(jobs, now_ms)
        blobs = Blobs()
        places = blobs.add_all(payloads_of(jobs))
        given = [(*row, *place) for row, *place in zip(rows, *places, strict=True)]
        ((ids, found),) = session.rows(
            "insert_jobs", rows=as_json(given), blobs=blobs.joined(), now_ms=now_ms
        )
        stored = set(found or ())
        return [
            Enqueued(job_id, created=True, state=state) if job_id in stored else None
            for job_id, state in zip(ids, states, strict=True)
        ]

    def _insert_members(self, session: Session, members: Sequence[Member]) -> None:
        now_ms = self._server.now_ms(session)
        blobs = Blobs()
        places = blobs.add_all([member.job.payload for member in members])
        rows = zip(member_rows(members, now_ms), *places, strict=True)
        session.run(
            "insert_members",
            rows=as_json((*row, *place) for row, *place in rows),
            blobs=blobs.joined(),
            now_ms=now_ms,
        )

    def _insert_query(self, session: Session, job: NewJob) -> Query:
        return "insert_job", {
            "kind": job.kind,
            "pool": job.pool,
            "priority": job.priority,
            "key": job.key,
            "unique_text": job.unique,
            "tenant": job.tenant,
            "max_attempts": job.max_attempts,
            "timeout_s": job.timeout_s,
            "memory_bytes": job.memory_bytes,
            "run_at_ms": job.run_at_ms,
            "delay_ms": job.delay_ms,
            "expires_in_ms": job.expires_in_ms,
            "payload": job.payload,
            "codec": job.codec,
            "lane": job.lane,
            "quota_values": stamp_of(job),
            "trace": job.trace,
            "now_ms": self._server.known_ms(session),
        }

    def _store_result(self, session: Session, job_id: int, result: bytes) -> None:
        """See `FlowOperating._store_result`: it is in the job's row."""

    def _put_payloads(
        self, session: Session, places: Sequence[tuple[Any, ...]], blobs: bytes
    ) -> None:
        """See `Enqueueing._put_payloads`: they are in the jobs' rows."""

    def _settle_plain(
        self, session: WritingSession, plain: Sequence[Settlement], now: Moment
    ) -> list[int]:
        blobs = Blobs()
        rows = [
            (*success_row(s, now), *blobs.add(s.result if has_result(s) else None))
            for s in plain
        ]
        given = {"rows": as_json(rows), "blobs": blobs.joined()}
        if not self._may_hold_permits:
            found = session.rows("succeed_jobs", **given)
            return [job_id for (job_id,) in found]
        tokens = [s.token for s in plain]
        found, ((is_awaited,),) = session.ask(
            ("succeed_jobs", given),
            ("free_ended", {"tokens": as_json(tokens), "capped": self._capped}),
        )
        self._has_freed |= is_awaited
        done = {job_id for (job_id,) in found}
        self._freed = {*self._freed, *(s.token for s in plain if s.id in done)}
        return list(done)

    def _raise_counters(self, session: Session, *, tokens: int, last_id: int) -> None:
        session.rows("move_raise_tokens", last=tokens)
        session.rows("move_raise_ids", last=last_id)
        session.rows("raise_flow_ids", last=last_id)

    def _lease_jobs(
        self, session: Session, run_id: str, ids: Sequence[int], now_ms: int
    ) -> list[int]:
        rows = as_json((job_id, secrets.randbits(TOKEN_BITS)) for job_id in ids)
        found = session.rows("lease_jobs", rows=rows, run_id=run_id, now_ms=now_ms)
        tokens: dict[int, int] = dict(found)
        return [tokens[job_id] for job_id in ids if job_id in tokens]


def _enqueued(stored: Sequence[Row]) -> Enqueued | None:
    """Return the job that `insert_job` has stored, if any."""
    if not stored:
        return None
    ((job_id, state),) = stored
    return Enqueued(job_id, created=True, state=JobState(state.decode()))
