"""Tables: the jobs with every index of them, and the few records beside.

An index follows from the rows alone, so whoever puts a row, new, changed or an old
one back again, need not think of any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from jobpool.core.job import FINISHED, JobState
from jobpool.store.memory.ranking import RankSet, rank_by_priority, rank_by_time
from jobpool.store.memory.row import Row

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
# An enum's member costs a look-up in its class, each time.
_PENDING, _RUNNABLE = JobState.PENDING, JobState.RUNNABLE


class Table(Protocol[K_contra, V]):
    """What a journal can change and change back."""

    def get(self, key: K_contra, /) -> V | None:
        """Return the record of a key, or None."""
        ...

    def put(self, key: K_contra, record: V | None) -> None:
        """Store the record of a key; None: delete it."""
        ...


class Records(dict[K, V], Generic[K, V]):
    """A table without indexes."""

    def put(self, key: K, record: V | None) -> None:
        """See `Table.put`."""
        if record is None:
            self.pop(key, None)
        else:
            self[key] = record


class JobTable:
    """All jobs.

    Attributes:
        unfinished: how many there are.
        by_key: ids by kind and idempotency key.
        by_unique: ids of unfinished jobs by kind and unique text.
        runnable: by pool and kind, in the order in which they are leased.
        pending: by the moment at which they fall due.
        expiring: those that no attempt has begun, by the moment at which they expire.
        held: ids of leased jobs by run.
        stopping: those of them whose cancellation was asked for.
        finished: by state, by the moment of their end.
    """

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._last_id = 0
        self._newest_id = 0
        self._is_in_order = True
        self._is_torn = False
        self.unfinished = 0
        self.by_key: dict[tuple[str, str], int] = {}
        self.by_unique: dict[tuple[str, str], int] = {}
        self.runnable: defaultdict[tuple[str, str], RankSet] = defaultdict(RankSet)
        self.pending = RankSet()
        self.expiring = RankSet()
        self.held: defaultdict[str, set[int]] = defaultdict(set)
        self.stopping: defaultdict[str, set[int]] = defaultdict(set)
        self.finished = {state: RankSet() for state in FINISHED}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, job_id: int) -> Row:
        return self._rows[job_id]

    def get(self, job_id: int, /) -> Row | None:
        """See `Table.get`."""
        return self._rows.get(job_id)

    def take_id(self) -> int:
        """Return a fresh id; ids grow and are never given twice."""
        self._last_id += 1
        return self._last_id

    def put(self, job_id: int, row: Row | None) -> None:
        """See `Table.put`."""
        former = self._rows.get(job_id)
        if row is not None:
            self.swap(former, row)
        elif former is not None:
            self._is_torn = True
            self._leave(former)
            del self._rows[job_id]
            self._is_torn = False

    def swap(self, former: Row | None, row: Row) -> None:
        """Store a job whose row was *former* until now; None: there was none."""
        self._is_torn = True
        if former is not None:
            self._leave(former)
        elif row.id > self._newest_id:
            self._newest_id = row.id
        else:
            self._is_in_order = False  # It was deleted, and that is undone.
        self._rows[row.id] = row
        self._enter(row)
        self._is_torn = False

    def mend(self) -> None:
        """Make the indexes anew, if a Ctrl-C has fallen into the change of one."""
        if not self._is_torn:
            return
        self.unfinished = 0
        for index in (self.by_key, self.by_unique):
            index.clear()
        for members in (self.runnable, self.held, self.stopping):
            members.clear()
        self.pending, self.expiring = RankSet(), RankSet()
        self.finished = {state: RankSet() for state in FINISHED}
        for row in self._rows.values():
            self._enter(row)
        self._is_torn = False

    def newest_first(self) -> Iterator[Row]:
        """Return all jobs, the highest id first."""
        if not self._is_in_order:
            self._rows = dict(sorted(self._rows.items()))
            self._is_in_order = True
        return reversed(self._rows.values())

    def tidy(self) -> None:
        """Forget kinds and runs that have no jobs any more."""
        for index in (self.runnable, self.held, self.stopping):
            for key in [key for key, members in index.items() if not members]:
                del index[key]  # type: ignore[arg-type]

    def _enter(self, row: Row) -> None:
        new, job_id, state = row.new, row.id, row.state
        if new.key is not None:
            self.by_key[new.kind, new.key] = job_id
        if row.finished_at_ms is not None:
            rank = rank_by_time(row.finished_at_ms, job_id)
            self.finished[state].add(rank)
            return
        if state is _RUNNABLE:
            rank = rank_by_priority(new.priority, row.run_at_ms, job_id)
            self.runnable[new.pool, new.kind].add(rank)
        elif state is _PENDING:
            self.pending.add(rank_by_time(row.run_at_ms, job_id))
        elif row.held is not None:
            self.held[row.held.run_id].add(job_id)
            if row.held.cancel_requested:
                self.stopping[row.held.run_id].add(job_id)
        self.unfinished += 1
        if new.unique is not None:
            self.by_unique[new.kind, new.unique] = job_id
        if row.expires_at_ms is not None and not row.attempt:
            self.expiring.add(rank_by_time(row.expires_at_ms, job_id))

    def _leave(self, row: Row) -> None:
        new, job_id, state = row.new, row.id, row.state
        if new.key is not None:
            del self.by_key[new.kind, new.key]
        if row.finished_at_ms is not None:
            rank = rank_by_time(row.finished_at_ms, job_id)
            self.finished[state].discard(rank)
            return
        if state is _RUNNABLE:
            rank = rank_by_priority(new.priority, row.run_at_ms, job_id)
            self.runnable[new.pool, new.kind].discard(rank)
        elif state is _PENDING:
            self.pending.discard(rank_by_time(row.run_at_ms, job_id))
        elif row.held is not None:
            self.held[row.held.run_id].discard(job_id)
            if row.held.cancel_requested:
                self.stopping[row.held.run_id].discard(job_id)
        self.unfinished -= 1
        if new.unique is not None:
            del self.by_unique[new.kind, new.unique]
        if row.expires_at_ms is not None and not row.attempt:
            self.expiring.discard(rank_by_time(row.expires_at_ms, job_id))
