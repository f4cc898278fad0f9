"""Replaying: a finished job is replaced by a new one, which takes over its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from jobpool.core.formats import CODECS
from jobpool.core.jobs.job import NewJob
from jobpool.errors import StoreUnavailable
from jobpool.store.operations.enqueue import Enqueueing
from jobpool.store.operations.repair import Repairing
from jobpool.store.records.operating import Replay
from jobpool.store.statements.parameters import as_json, chunks
from jobpool.store.statements.session import Session
from jobpool.store.statements.validation import check_new_jobs, is_id


class Replaying(Repairing, Enqueueing):
    """The part of the store that replaces jobs."""

    _LOCK_JOBS: ClassVar[str | None] = None
    """The query that locks jobs until the commit, where there are other writers."""
    _LOCK_FLOWS_OF: ClassVar[str | None] = None
    """The same for flows of jobs."""

    def replay(self, replays: Sequence[Replay]) -> list[int | None]:
        """See `Store.replay`."""
        if not replays:
            return []
        known = [one.job_id for one in replays if is_id(one.job_id)]
        return self._with_repair(lambda: self._replay(replays, known), lambda _: known)

    def _replay(
        self, replays: Sequence[Replay], known: Sequence[int]
    ) -> list[int | None]:
        wanted = as_json(known)
        if self._granted < CODECS and any(one.new.codec for one in replays):
            self._ask_for(CODECS)
        with self._database.writing() as session:
            check_new_jobs(
                [one.new for one in replays], self._database.known_ms(session)
            )
            self._lock_again(session, wanted)
            free = {job_id for (job_id,) in session.rows("replayable", ids=wanted)}
            chosen = _without_conflicts(session, replays, free)
            made = self._replace(session, chosen) if chosen else {}
        return [made.pop(one.job_id, None) for one in replays]

    def _lock_again(self, session: Session, wanted: str) -> None:
        """Lock jobs that are to run again, and first their flows, as folds do.

        So their steps do not end meanwhile: in one that has ended a job would wait for
        ever.
        """
        for query in (self._LOCK_FLOWS_OF, self._LOCK_JOBS):
            if query:
                session.rows(query, ids=wanted)

    def _replace(
        self, session: Session, chosen: Sequence[Replay]
    ) -> dict[int, int | None]:
        """Store the new jobs, and link them; return their ids by the old ones.

        Raises:
            StoreUnavailable: another producer was faster; the transaction must be
                rolled back.
        """
        ids = [one.job_id for one in chosen]
        session.run("give_up_keys", ids=as_json(ids))
        self._depth.add(session, len(chosen))
        stored = [
            one.id
            for chunk in chunks([one.new for one in chosen])
            for one in self._insert(session, chunk)
            if one is not None
        ]
        if len(stored) != len(chosen):
            raise StoreUnavailable(
                f"{len(chosen) - len(stored)} replays met jobs with their key or "
                "unique text that had just been stored; nothing was replayed. Try again"
            )
        links = as_json(zip(stored, ids, strict=True))
        session.run("link_to_replaced", rows=links)
        session.run("pass_ticks_on", rows=links)
        session.run("link_to_replays", rows=links)
        session.run("note_waiting", ids=as_json(stored))
        return dict(zip(ids, stored, strict=True))


def _without_conflicts(
    session: Session, replays: Sequence[Replay], free: set[int]
) -> list[Replay]:
    """Return the replays of free jobs whose key and unique text nobody else holds."""
    keys = _holders(session, "key_holders", [_key(one.new) for one in replays])
    uniques = _holders(session, "unique_holders", [_unique(one.new) for one in replays])
    chosen = []
    for one in replays:
        key, unique = _key(one.new), _unique(one.new)
        is_taken = keys.get(key, one.job_id) != one.job_id or unique in uniques
        if one.job_id not in free or is_taken:
            continue
        free.remove(one.job_id)
        chosen.append(one)
        if key is not None:
            keys[key] = 0  # not another one's of this call
        if unique is not None:
            uniques[unique] = 0
    return chosen


_Name = tuple[str, str] | None


def _key(job: NewJob) -> _Name:
    return None if job.key is None else (job.kind, job.key)


def _unique(job: NewJob) -> _Name:
    return None if job.unique is None else (job.kind, job.unique)


def _holders(session: Session, query: str, names: Sequence[_Name]) -> dict[_Name, int]:
    """Return the jobs that hold keys or unique texts."""
    wanted = [name for name in names if name is not None]
    if not wanted:
        return {}
    rows = session.rows(query, rows=as_json(wanted))
    return {wanted[place]: job_id for place, job_id, *_ in rows}
