"""Enqueueing: keys, unique texts and the depth of the queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.formats import CODECS
from jobpool.core.jobs.job import Enqueued, JobState, NewJob
from jobpool.core.jobs.uniform_batch import representatives
from jobpool.core.rules.admission import Admission
from jobpool.errors import UsageError
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.tables.rows import Row
from jobpool.store.statements.validation import (
    check_new_jobs,
    key_conflict,
    queue_full,
)

_PENDING, _RUNNABLE = JobState.PENDING, JobState.RUNNABLE


class Enqueueing(ABC):
    """The producers' part of the store."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock
    _admission: Admission
    require: Callable[[int], None]
    """See `Store.require`."""

    def enqueue(
        self, jobs: Sequence[NewJob], connection: Any = None, *, wakes: bool = False
    ) -> list[Enqueued]:
        """See `Store.enqueue`; a connection is always refused."""
        if connection is not None:
            raise self._no_connections()
        if not jobs:
            return []
        if any(job.codec is not None for job in representatives(jobs)):
            self.require(CODECS)
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            check_new_jobs(jobs, now_ms)
            unfinished = self._database.jobs.unfinished
            answers = self._insert(jobs, now_ms)
            fresh = self._database.jobs.unfinished - unfinished
            if fresh and unfinished + fresh > self._admission.stored_max:
                raise queue_full(unfinished, self._admission.stored_max, fresh)
        if wakes:
            self.wake()
        return answers

    @abstractmethod
    def wake(self) -> None:
        """See `Store.wake`."""

    def caller_transaction(self, connection: Any) -> AbstractContextManager[None]:
        """See `Store.caller_transaction`; always refused."""
        del connection
        raise self._no_connections()

    def _insert(self, jobs: Sequence[NewJob], now_ms: int) -> list[Enqueued]:
        """Store checked jobs one after another, whatever the depth of the queue.

        Raises:
            KeyConflict: a key is held by a job with other arguments.
        """
        table, put_job = self._database.jobs, self._database.put_job
        first_id = 0
        answers: list[Enqueued] = []
        for job in jobs:
            if job.key is not None or job.unique is not None:
                held = self._held(job, first_id)
                if held is not None:
                    answers.append(Enqueued(held.id, created=False, state=held.state))
                    continue
            job_id = table.take_id()
            first_id = first_id or job_id
            row = _row(job_id, job, now_ms)
            put_job(None, row)
            answers.append(Enqueued(job_id, True, row.state))
        return answers

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

    def _no_connections(self) -> UsageError:
        return UsageError(
            f"connection: the store {self._database.url} is in memory: no database's "
            "transaction can include it; leave the connection out, or use a store in "
            "that database. Nothing was enqueued"
        )


def _row(job_id: int, job: NewJob, now_ms: int) -> Row:
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
