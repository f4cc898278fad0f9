"""Enqueueing: keys, unique texts and the depth of the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from heapq import nlargest
from itertools import chain
from typing import Any

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.formats import CODECS
from jobpool.core.jobs.job import Debounce, Enqueued, JobState, NewJob, OnConflict
from jobpool.core.jobs.uniform_batch import representatives
from jobpool.core.rules.admission import NO_BOUND, Admission, Bound, Scope, Seen, Sort
from jobpool.core.rules.lifecycle import JobEvent, after
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.tables.ordered_set import RankSet, id_of, oldest_ms, time_of
from jobpool.store.memory.tables.rows import Row, Shared
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.operations.producers.fullness import beyond, full_scopes
from jobpool.store.operations.producers.sight import (
    ENDS_MAX,
    ENDS_WITHIN_S,
    Concerned,
    Outlook,
    Sight,
    ends_per_s,
)
from jobpool.store.records.quotas import FullRow
from jobpool.store.statements.validation import (
    ID_MAX,
    check_new_jobs,
    key_conflict,
)

_replace = msgspec.structs.replace
_PENDING, _RUNNABLE = JobState.PENDING, JobState.RUNNABLE
_OPEN = frozenset({_PENDING, _RUNNABLE, JobState.WAITING})


class Enqueueing(ABC):
    """The producers' part of the store."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock
    _entrance: Entrance
    require: Callable[[int], None]
    """See `Store.require`."""

    def enqueue(
        self, jobs: Sequence[NewJob], connection: Any = None, *, wakes: bool = False
    ) -> list[Enqueued]:
        """See `Store.enqueue`; a connection is always refused."""
        self._database.refuse(connection)
        if not jobs:
            return []
        if any(job.codec is not None for job in representatives(jobs)):
            self.require(CODECS)
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            check_new_jobs(jobs, now_ms)
            unfinished = self._database.jobs.unfinished
            sight = MemorySight(self._database, now_ms)
            answers = self._insert(self._placed(jobs, sight), now_ms)
            fresh = self._database.jobs.unfinished - unfinished
            most = self._entrance.admission.stored_max
            if fresh and unfinished + fresh > most:
                full = beyond(unfinished, most, fresh)
                raise self._entrance.refusal(full, jobs, sight)
        if wakes:
            self.wake()
        return answers

    def _placed(self, jobs: Sequence[NewJob], sight: Sight) -> Sequence[NewJob]:
        """Return jobs as they are to be stored; those that exist need no room.

        Raises:
            QueueFull: some may not be stored.
            KeyConflict: as of `_insert`.
        """
        if self._entrance.is_open:
            return jobs
        taken: set[tuple[str, str, str]] = set()
        fresh: list[int] = []
        for place, job in enumerate(jobs):
            names = {
                (job.kind, sort, name)
                for sort, name in (("key", job.key), ("unique", job.unique))
                if name is not None
            }
            if self._held(job, 0) is None and taken.isdisjoint(names):
                fresh.append(place)
                taken |= names
        placed = [*jobs]
        admitted = self._entrance.admit([jobs[place] for place in fresh], sight)
        for place, job in zip(fresh, admitted, strict=True):
            placed[place] = job
        return placed

    def admit_by(self, admission: Admission) -> None:
        """See `Store.admit_by`."""
        self._entrance = self._entrance.by(admission)

    def full(self) -> list[FullRow]:
        """See `Store.full`."""
        with self._session.reading:
            sight = MemorySight(self._database, self._clock.utc_ms())
            return list(full_scopes(self._entrance.admission, sight))

    @abstractmethod
    def wake(self) -> None:
        """See `Store.wake`."""

    def caller_transaction(self, connection: Any) -> AbstractContextManager[None]:
        """See `Store.caller_transaction`; always refused."""
        del connection
        raise self._database.no_connections()

    def _insert(self, jobs: Sequence[NewJob], now_ms: int) -> list[Enqueued]:
        """Store checked jobs one after another, whatever the depth of the queue.

        Raises:
            KeyConflict: a key is held by a job with other arguments.
        """
        table, put_job = self._database.jobs, self._database.put_job
        first_id = 0
        answers: list[Enqueued] = []
        for job in jobs:
            if job.debounce is not None and job.unique is not None:
                answers.append(self._debounced(job, job.unique, now_ms))
                continue
            if job.key is not None or job.unique is not None:
                held = self._held(job, first_id)
                if held is not None:
                    answers.append(Enqueued(held.id, created=False, state=held.state))
                    continue
            job_id = table.take_id()
            first_id = first_id or job_id
            row = new_row(job_id, job, now_ms)
            put_job(None, row)
            answers.append(Enqueued(job_id, True, row.state))
        return answers

    def _debounced(self, job: NewJob, text: str, now_ms: int) -> Enqueued:
        """Store a job, or change the one that has its unique text; see `debounce`."""
        table, debounce = self._database.jobs, job.debounce or Debounce()
        holder = table.by_unique.get((job.kind, text))
        follower = table.waiting.get((job.kind, text))
        if holder is None and follower is None:
            return self._put_debounced(job, None, now_ms)
        if holder is None:  # It has been missed: nobody has the text any more.
            self._database.pass_text_on(job.kind, text)
            holder, follower = follower, None
        row = table[follower or holder or 0]
        is_open = follower is not None or (_is_open(row) and row.new.key is None)
        if not debounce.revises:
            return Enqueued(row.id, created=False, state=row.state)
        if is_open:
            return self._change_debounced(row, job, text, now_ms)
        return self._put_debounced(job, Shared(text, waits=True), now_ms)

    def _put_debounced(
        self, job: NewJob, shared: Shared | None, now_ms: int
    ) -> Enqueued:
        """Store a debounced job; *shared*: it waits for its text."""
        until_start = job.debounce is not None and job.debounce.until_start
        row = new_row(self._database.jobs.take_id(), job, now_ms)
        if shared is not None:
            new = _replace(row.new, unique=None)
            row = _replace(row, new=new, state=JobState.WAITING)
        if shared is not None or until_start:
            shared = shared or Shared(job.unique or "")
            row = _replace(row, shared=_replace(shared, until_start=until_start))
        self._database.put_job(None, row)
        return Enqueued(row.id, True, row.state)

    def _change_debounced(
        self, row: Row, job: NewJob, text: str, now_ms: int
    ) -> Enqueued:
        """Give a job that has not begun other arguments and options."""
        debounce, former = job.debounce or Debounce(), row.shared or Shared(text)
        is_later = debounce.on_conflict is OnConflict.POSTPONE
        run_at_ms, state = row.run_at_ms, row.state
        given = new_row(row.id, job, now_ms)
        if is_later:
            latest_ms = row.created_at_ms + debounce.postpone_max_ms
            run_at_ms = min(given.run_at_ms, latest_ms)
            state = after(state, JobEvent.POSTPONE)
        revised: Row = _replace(
            row,
            new=_replace(given.new, unique=row.new.unique, key=None),
            state=state,
            run_at_ms=run_at_ms,
            expires_at_ms=given.expires_at_ms,
            ended=_replace(row.ended, reason=None),
            shared=_replace(
                former,
                until_start=debounce.until_start,
                replacements=former.replacements + 1,
                postponements=former.postponements + is_later,
            ),
        )
        self._database.put_job(row, revised)
        for misfit in [one for one in self._database.misfits if one[0] == row.id]:
            self._database.put(self._database.misfits, misfit, None)
        return Enqueued(row.id, False, state, replaced=True, postponed=is_later)

    def release_followers(self, limit: int = 1000) -> int:
        """See `Store.release_followers`: a row cannot be missed or deleted here."""
        del limit
        return 0

    def _held(self, job: NewJob, first_id: int) -> Row | None:
        """Return the stored job that a new one duplicates, if any.

        Args:
            job: the new one.
            first_id: the first id that this call has stored; 0: none yet.
        """
        table = self._database.jobs
        if job.key is not None:
            job_id = table.by_key.get((job.kind, job.key))
            if job_id is not None:
                row = table[job_id]
                held = row.new
                if held.payload not in (job.payload, *job.same_payloads):
                    holder_id = 0 if 0 < first_id <= job_id else job_id
                    raise key_conflict([(job, holder_id, held.payload, held.codec)])
                return row
        if job.unique is not None:
            job_id = table.by_unique.get((job.kind, job.unique))
            if job_id is not None:
                return table[job_id]
        return None


class MemorySight:
    """What can be seen of the jobs that wait, at one moment."""

    def __init__(self, database: MemoryDatabase, now_ms: int) -> None:
        self._database = database
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """See `Sight`."""
        return self._now_ms

    def look(self, scope: Scope, bound: Bound, most: int) -> Seen:
        """See `Sight`."""
        jobs = self._database.jobs
        if scope.sort is Sort.TENANT:
            ranks = jobs.of_tenant.get(scope.name, RankSet())
            first = ranks.first()
            at_ms, waiting = None if first is None else time_of(first), len(ranks)
            kind = ""
        else:
            queues = {
                place: queue
                for place, queue in jobs.runnable.items()
                if queue and scope.name in ("", place[_PLACES[scope.sort]])
            }
            waiting = sum(map(len, queues.values()))
            oldest = min(
                ((oldest_ms(queue), kind) for (_, kind), queue in queues.items()),
                default=None,
            )
            at_ms, kind = oldest or (None, "")
        if scope.sort is Sort.QUEUE and bound.depth_max is not None:
            waiting = jobs.unfinished
        return Seen(
            min(waiting, most),
            None if at_ms is None else max(0.0, (self._now_ms - at_ms) / 1000),
            kind if scope.sort is not Sort.KIND else "",
        )

    def tenants(
        self, least: int | None, older_s: float | None
    ) -> Iterable[tuple[str, Seen]]:
        """See `Sight`."""
        for name in self._database.jobs.of_tenant:
            seen = self.look(Scope(Sort.TENANT, name), NO_BOUND, ID_MAX)
            is_many = least is not None and seen.waiting >= max(1, least)
            if is_many or (older_s is not None and (seen.age_s or 0.0) > older_s):
                yield name, seen

    def outlook(self, scope: Scope, job: Concerned) -> Outlook:
        """See `Sight`."""
        jobs, since_ms = self._database.jobs, self._now_ms - int(1000 * ENDS_WITHIN_S)
        succeeded = chain(
            jobs.finished[JobState.SUCCEEDED], jobs.finished_members[JobState.SUCCEEDED]
        )
        ranks = nlargest(ENDS_MAX, succeeded)
        ends = [jobs[id_of(r)] for r in ranks if time_of(r) > since_ms]
        matched = sum(
            scope.sort is Sort.QUEUE or getattr(row.new, scope.sort) == scope.name
            for row in ends
        )
        first_ms = min((row.finished_at_ms or 0 for row in ends), default=self._now_ms)
        ends_s = ends_per_s(matched, len(ends), (self._now_ms - first_ms) / 1000)
        return Outlook(ends_s, max(0, self._held_until_ms(job) - self._now_ms) / 1000)

    def _held_until_ms(self, job: Concerned) -> int:
        """Return until when nothing of a job's kind begins; 0: that is not so."""
        pauses = self._database.pauses
        names = {
            ("store", ""),
            ("pool", job.pool),
            ("kind", job.kind),
            ("tenant", job.tenant),
        }
        found = [pause.until_ms or 0 for what, pause in pauses.items() if what in names]
        lanes = [
            max((self._closed_until_ms(u.bucket) for u in lane.uses), default=0)
            for lane in self._database.jobs.lanes.of_kind(job.pool, job.kind)
        ]
        return max([*found, min(lanes, default=0)], default=0)

    def _closed_until_ms(self, bucket: int) -> int:
        row = self._database.buckets.get(bucket)
        if row is None:
            return 0
        breaker = row.breaker.at(self._now_ms)
        return max(row.block_until_ms, breaker.until_ms if breaker.is_open else 0)


_PLACES = {Sort.QUEUE: 0, Sort.POOL: 0, Sort.KIND: 1}
"""Where the name of a scope is in the key of a queue."""


def _is_open(row: Row) -> bool:
    """Say whether nothing of an unfinished job has run."""
    return row.state in _OPEN and not row.attempt and not row.snoozes


def new_row(job_id: int, job: NewJob, now_ms: int) -> Row:
    """Return the row of a job that is stored now."""
    if job.timeout_s is not None and type(job.timeout_s) is not float:
        job = msgspec.structs.replace(job, timeout_s=float(job.timeout_s))
    run_at_ms = now_ms + job.delay_ms if job.run_at_ms is None else job.run_at_ms
    expires_in_ms = job.expires_in_ms
    return Row(
        job_id,
        job,
        _RUNNABLE if run_at_ms <= now_ms else _PENDING,
        now_ms,
        run_at_ms,
        None if expires_in_ms is None else now_ms + expires_in_ms,
    )
