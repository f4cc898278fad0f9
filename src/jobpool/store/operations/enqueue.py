"""Enqueueing: keys, unique texts, the depth of the queue, and the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

from jobpool.core.formats import CODECS, FLOWS, OLDEST, feature_of
from jobpool.core.jobs.job import TIME_MAX_MS, Enqueued, JobState, NewJob
from jobpool.core.jobs.uniform_batch import UniformJobs, as_uniform, representatives
from jobpool.core.rules.admission import Admission
from jobpool.errors import (
    FeatureHeldBack,
    JobpoolBug,
    QueueFull,
    StoreRefused,
    StoreUnavailable,
)
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.operations.producers.debounce import (
    Means,
    is_debounced,
    release_followers,
    store_debounced,
)
from jobpool.store.operations.producers.fullness import full_scopes
from jobpool.store.operations.producers.sight import StoredSight
from jobpool.store.records.quotas import FullRow
from jobpool.store.records.runs import Formats
from jobpool.store.statements.formats import held_back
from jobpool.store.statements.limits import encoded_values
from jobpool.store.statements.parameters import as_json, chunks
from jobpool.store.statements.session import Database, Depth, Session
from jobpool.store.statements.validation import check_new_jobs, key_conflict


class _Holder(NamedTuple):
    """The job that holds a key or a unique text: stored, or earlier in this chunk."""

    payload: bytes | None
    stored: Enqueued | None = None
    place: int = -1
    codec: str | None = None


_NOT_IN_USE = {
    CODECS: (
        "encoded jobs are not in use here yet, and this role may not ask for them; "
        "start a supervisor of an application that has the codec"
    ),
    FLOWS: (
        "flows are not in use here yet, and this role may not ask for them; enqueue "
        "the first one by a login that has the role jobpool_supervisor"
    ),
}
_TRIES = 5
"""How often a job that another producer has just stored is searched for again."""


class Enqueueing(ABC):
    """The producers' part of the store."""

    _database: Database
    _depth: Depth
    _entrance: Entrance
    _LOCK_FORMATS: ClassVar[str | None] = None
    """The query that keeps runs from beginning until the transaction has ended; None:
    a writer is alone."""
    _LOCK_TEXTS: ClassVar[str | None] = None
    """The query by which producers of the same unique texts take turns; None: a writer
    is alone."""
    _WRITES_BESIDE: ClassVar[bool] = False
    """Our own connection can write while a caller's transaction is open."""
    formats: Callable[[], Formats]
    """See `Store.formats`."""
    require: Callable[[int], None]
    """See `Store.require`."""
    _granted = OLDEST
    """Every supervisor that may lease is known to honour this format."""
    _released_to = 0
    """How far `release_followers` has come."""

    def enqueue(
        self, jobs: Sequence[NewJob], connection: Any = None, *, wakes: bool = False
    ) -> list[Enqueued]:
        """See `Store.enqueue`."""
        if not jobs:
            return []
        jobs = as_uniform(jobs)
        checked = representatives(jobs)
        asks = self._granted < CODECS and any(job.codec is not None for job in checked)
        if asks and (connection is None or self._WRITES_BESIDE):
            self._ask_for(CODECS)
            asks = False
        if connection is not None:
            place = self._joined(connection)
        else:
            self._foresee(jobs)
            place = self._waking() if wakes else self._database.writing()
        with place as session:
            check_new_jobs(jobs, self._database.known_ms(session))
            if asks:
                self._ask_for_within(session, CODECS)
            return [
                answer
                for chunk in chunks(jobs)
                for answer in self._store(session, chunk)
            ]

    def _foresee(self, jobs: Sequence[NewJob]) -> None:
        """Count what takes long to count before the transaction begins."""
        if self._database.is_writing or not self._entrance.is_slow(jobs):
            return
        with self._database.reading() as session:
            self._entrance.foresee(jobs, StoredSight(self._database, session))

    def admit_by(self, admission: Admission) -> None:
        """See `Store.admit_by`."""
        self._entrance = self._entrance.by(admission)
        self._depth.limit_to(admission.stored_max)

    def full(self) -> list[FullRow]:
        """See `Store.full`."""
        with self._database.reading() as session:
            sight = StoredSight(self._database, session)
            return list(full_scopes(self._entrance.admission, sight))

    def release_followers(self, limit: int = 1000) -> int:
        """See `Store.release_followers`."""
        self._released_to, released = release_followers(
            self._database, self._released_to, limit
        )
        return released

    @abstractmethod
    def wake(self) -> None:
        """See `Store.wake`."""

    @contextmanager
    def _waking(self) -> Iterator[Session]:
        """Use the connection in a transaction, and `wake` after its commit."""
        with self._database.writing() as session:
            yield session
        self.wake()

    @abstractmethod
    def _joined(self, connection: Any) -> AbstractContextManager[Session]:
        """Use a caller's connection, within its transaction."""

    @abstractmethod
    def _insert(
        self, session: Session, jobs: Sequence[NewJob]
    ) -> list[Enqueued | None]:
        """Store checked jobs, in order.

        Returns:
            An entry for each job; None: it was not stored, because another producer
            has just stored a job with its key or unique text.
        """

    def _ask_for(self, wanted: int) -> None:
        """Ask for a feature, before the transaction of the first use of it.

        So the wish outlives its refusal. Nothing is remembered here of what an open
        transaction has granted: that may be rolled back yet.

        Args:
            wanted: its format.

        Raises:
            FeatureHeldBack: supervisors are running that do not know it.
            StoreRefused: it is not in use yet, and this role may not ask for it.
        """
        if self.formats().least < wanted:
            try:
                self.require(wanted)
            except StoreRefused as error:  # Producers may read these numbers alone.
                if behind := self.formats().held_back_by:
                    raise held_back(behind, wanted) from error
                raise StoreRefused(
                    f"{_NOT_IN_USE[wanted]}, then try again; nothing was enqueued. "
                    f"{error}"
                ) from error
        if not self._database.is_writing:
            self._granted = max(self._granted, wanted)

    def _ask_for_within(self, session: Session, wanted: int) -> None:
        """As `_ask_for`, within a caller's transaction.

        Its rows may have any types, so that older runs are only counted. What it asks
        for and is granted is rolled back with it.
        """
        if session.value("has_format", format=wanted):
            return
        if self._LOCK_FORMATS:
            session.rows(self._LOCK_FORMATS)
        if session.value("count_older_runs", format=wanted):
            raise FeatureHeldBack(
                f"{feature_of(wanted)} wait for supervisors of an older release, which "
                "do not know them. Upgrade or stop them, then try again; nothing was "
                "enqueued. Enqueued outside a transaction, the refusal names them"
            )
        session.run("want_format", wanted=wanted)
        session.run("grant_format", granted=wanted)

    def _admit(self, session: Session, jobs: Sequence[NewJob]) -> list[Enqueued | None]:
        """Store checked jobs as `_insert`, if there is room for them.

        Raises:
            QueueFull: there is none; the transaction must be rolled back.
        """
        self._depth.reserve(session, len(jobs))
        return self._insert(session, jobs)

    def _enter(
        self, session: Session, jobs: Sequence[NewJob], *, may_wait: bool = False
    ) -> list[Enqueued | None]:
        """Store checked jobs as `_admit`, unless too many wait.

        Args:
            session: in a transaction.
            jobs: to be stored.
            may_wait: each waits for one that is there: just the whole queue is bounded.

        Raises:
            QueueFull: too many do; the transaction must be rolled back.
        """
        sight = StoredSight(self._database, session)
        placed = jobs if may_wait else self._entrance.admit(jobs, sight)
        try:
            return self._admit(session, placed)
        except QueueFull as full:
            raise self._entrance.refusal(full, placed, sight) from None

    def _store(self, session: Session, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store a chunk of checked jobs, as if one after another."""
        if not is_debounced(representatives(jobs)):
            return self._store_chunk(session, jobs)
        means = Means(
            now_ms=self._database.now_ms(session),
            admit=self._enter,
            put_payloads=self._put_payloads,
            lock=self._LOCK_TEXTS,
        )
        answers: list[Enqueued] = []
        for is_shared, alike in groupby(jobs, lambda job: job.debounce is not None):
            part = list(alike)
            answers += (
                store_debounced(session, part, means)
                if is_shared
                else self._store_chunk(session, part)
            )
        return answers

    @abstractmethod
    def _put_payloads(
        self, session: Session, places: Sequence[tuple[Any, ...]], blobs: bytes
    ) -> None:
        """Replace payloads, where `revise_jobs` does not do so itself.

        Args:
            session: in a transaction.
            places: ids, and where in *blobs* their payloads are: first byte from 1, and
                length.
            blobs: the payloads.
        """

    def _store_chunk(
        self,
        session: Session,
        jobs: Sequence[NewJob],
        tries: int = _TRIES,
    ) -> list[Enqueued]:
        answers = _held(session, jobs)
        fresh = jobs
        if any(answers):
            pairs = zip(jobs, answers, strict=True)
            fresh = [job for job, held in pairs if held is None]
        if not fresh:
            return [_stored(answer) for answer in answers if answer is not None]
        inserted = self._enter(session, fresh)
        stored = [one for one in inserted if one is not None]
        if len(stored) == len(jobs):  # usually: there is no conflict at all
            return stored
        beaten = [job for job, one in zip(fresh, inserted, strict=True) if one is None]
        if beaten and not tries:
            raise StoreUnavailable(
                f"{len(beaten)} jobs met others with their key or unique text that "
                "came and went too fast; nothing was enqueued. Try again"
            )
        again = (
            iter(self._store_chunk(session, beaten, tries - 1)) if beaten else iter(())
        )
        created = (next(again) if one is None else one for one in inserted)
        merged: list[Enqueued] = []
        for answer in answers:
            if answer is None:
                merged.append(next(created))
            elif answer.stored is not None:
                merged.append(answer.stored)
            else:
                twin = merged[answer.place]
                merged.append(Enqueued(twin.id, created=False, state=twin.state))
        return merged


def _stored(holder: _Holder) -> Enqueued:
    if holder.stored is None:
        raise JobpoolBug("a job is its own duplicate; please report this")
    return holder.stored


def _held(session: Session, jobs: Sequence[NewJob]) -> list[_Holder | None]:
    """Find which jobs exist already, as if they were enqueued one after another.

    Returns:
        For each job the one that it duplicates, or None: store it.
    """
    checked = representatives(jobs)
    if not any(job.key is not None or job.unique is not None for job in checked):
        return [None] * len(jobs)
    keys, uniques = _stored_holders(session, jobs)
    answers: list[_Holder | None] = []
    conflicts: list[tuple[NewJob, _Holder]] = []
    for place, job in enumerate(jobs):
        by_key = keys.get((job.kind, job.key))
        same = job.payload, *job.same_payloads
        if by_key is not None and by_key.payload not in same:
            conflicts.append((job, by_key))
            if job.codec is None:
                break
        held = by_key or uniques.get((job.kind, job.unique))
        answers.append(held)
        if held is None:
            own = _Holder(job.payload, place=place, codec=job.codec)
            if job.key is not None:
                keys[job.kind, job.key] = own
            if job.unique is not None:
                uniques[job.kind, job.unique] = own
    if conflicts:
        raise key_conflict(
            (job, held.stored.id if held.stored else 0, held.payload, held.codec)
            for job, held in conflicts
        )
    return answers


_Holders = dict[tuple[str, str | None], _Holder]


def _stored_holders(
    session: Session, jobs: Sequence[NewJob]
) -> tuple[_Holders, _Holders]:
    keyed = [(job.kind, job.key) for job in jobs if job.key is not None]
    unique = [(job.kind, job.unique) for job in jobs if job.unique is not None]
    keys: _Holders = {}
    uniques: _Holders = {}
    if keyed:
        for place, job_id, state, payload, codec in session.rows(
            "key_holders", rows=as_json(keyed)
        ):
            keys[keyed[place]] = _Holder(
                payload,
                _existing(job_id, state),
                codec=None if codec is None else codec.decode(),
            )
    if unique:
        for place, job_id, state in session.rows(
            "unique_holders", rows=as_json(unique)
        ):
            uniques[unique[place]] = _Holder(None, _existing(job_id, state))
    return keys, uniques


def _existing(job_id: int, state: bytes) -> Enqueued:
    return Enqueued(job_id, created=False, state=JobState(state.decode()))


def stamp_of(job: NewJob) -> str | None:
    """Return what quotas count a job by, as it is stored."""
    if job.quota_values is None:
        return None
    return encoded_values(job.quota_values)


def job_rows(
    jobs: Sequence[NewJob], now_ms: int
) -> tuple[list[tuple[Any, ...]], list[JobState]]:
    """Return the rows of new jobs for `insert_jobs`, and their states."""
    if isinstance(jobs, UniformJobs):
        rows, states = job_rows([jobs.pattern], now_ms)
        return rows * len(jobs), states * len(jobs)
    rows, states = [], []
    for job in jobs:
        run_at_ms = job.run_at_ms
        if run_at_ms is None:
            run_at_ms = min(now_ms + job.delay_ms, TIME_MAX_MS)
        state = JobState.RUNNABLE if run_at_ms <= now_ms else JobState.PENDING
        expires_in_ms = job.expires_in_ms
        states.append(state)
        rows.append(
            (
                job.kind,
                job.pool,
                state,
                job.priority,
                job.key,
                job.unique,
                job.tenant,
                job.max_attempts,
                job.timeout_s,
                job.memory_bytes,
                run_at_ms,
                None if expires_in_ms is None else now_ms + expires_in_ms,
                job.codec,
                job.lane,
                stamp_of(job),
                job.trace,
            )
        )
    return rows, states
