"""The jobs with their indexes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.rules.quotas.rules import Rules
from jobpool.store.memory.tables.lanes import LaneIndex
from jobpool.store.memory.tables.ordered_set import (
    RankSet,
    id_of,
    rank_by_priority,
    rank_by_time,
)
from jobpool.store.memory.tables.rows import Held, Row

# Accessing an enum's member costs a lookup in its class each time.
_PENDING, _RUNNABLE = JobState.PENDING, JobState.RUNNABLE
_WAITING = JobState.WAITING


class JobTable:
    """All jobs.

    Attributes:
        unfinished: how many there are.
        by_key: ids by kind and idempotency key.
        by_unique: ids of unfinished jobs by kind and unique text.
        waiting: ids of jobs that wait for a unique text, by kind and that text.
        runnable: by pool and kind, in the order in which they are leased.
        of_tenant: runnable jobs of tenants, by the moment since when they are due.
        lanes: runnable jobs of kinds that quotas concern.
        pending: by the moment at which they fall due.
        expiring: jobs without an attempt that do not wait for others, by the moment at
            which they expire.
        held: ids of leased jobs by run.
        stopping: those of them whose cancellation was requested.
        finished: those that are in no flow, by state, by the moment of their end.
        finished_members: the others.
        members: ids of all jobs of a step, in order; by step.
        unended: the same of those that have not ended.
        held_back: those of them that wait.
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
        self.waiting: dict[tuple[str, str], int] = {}
        self.runnable: defaultdict[tuple[str, str], RankSet] = defaultdict(RankSet)
        self.of_tenant: defaultdict[str, RankSet] = defaultdict(RankSet)
        self.lanes = LaneIndex()
        self.pending = RankSet()
        self.expiring = RankSet()
        self.held: defaultdict[str, set[int]] = defaultdict(set)
        self.stopping: defaultdict[str, set[int]] = defaultdict(set)
        self.finished = {state: RankSet() for state in FINISHED}
        self.finished_members = {state: RankSet() for state in FINISHED}
        self.members: defaultdict[int, RankSet] = defaultdict(RankSet)
        self.unended: defaultdict[int, RankSet] = defaultdict(RankSet)
        self.held_back: defaultdict[int, RankSet] = defaultdict(RankSet)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, job_id: int) -> Row:
        return self._rows[job_id]

    def get(self, job_id: int, /) -> Row | None:
        """See `Table.get`."""
        return self._rows.get(job_id)

    def take_id(self) -> int:
        """Return a fresh id; ids increase and are never given out twice."""
        self._last_id += 1
        return self._last_id

    def take_ids(self, last_id: int) -> None:
        """Give out no id up to this one any more."""
        self._last_id = max(self._last_id, last_id)

    @property
    def last_id(self) -> int:
        """The last id that was given out."""
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
        """Replace a job's row; *former* None: the job is new."""
        self._is_torn = True
        if former is not None:
            self._leave(former)
        elif row.id > self._newest_id:
            self._newest_id = row.id
        else:
            self._is_in_order = False  # Its deletion is being undone.
        self._rows[row.id] = row
        self._enter(row)
        self._is_torn = False

    def repair_indexes(self) -> None:
        """Rebuild the indexes, if a Ctrl-C has interrupted a change to one."""
        if not self._is_torn:
            return
        self.unfinished = 0
        for index in (self.by_key, self.by_unique, self.waiting):
            index.clear()
        for members in (self.runnable, self.of_tenant, self.held, self.stopping):
            members.clear()
        self.pending, self.expiring = RankSet(), RankSet()
        self.lanes.arrange(self.lanes.rules, ())
        self.finished = {state: RankSet() for state in FINISHED}
        self.finished_members = {state: RankSet() for state in FINISHED}
        for of_step in (self.members, self.unended, self.held_back):
            of_step.clear()
        for row in self._rows.values():
            self._enter(row)
        self._is_torn = False

    def arrange_lanes(self, in_force: Rules) -> None:
        """Make the lanes by other rules."""
        ranked = (
            (rank, self._rows[id_of(rank)])
            for queue in self.runnable.values()
            for rank in queue
        )
        self.lanes.arrange(in_force, ranked)

    def newest_first(self) -> Iterator[Row]:
        """Return all jobs, the highest id first."""
        if not self._is_in_order:
            self._rows = dict(sorted(self._rows.items()))
            self._is_in_order = True
        return reversed(self._rows.values())

    def tidy(self) -> None:
        """Drop index entries of kinds, runs and steps that no longer have jobs."""
        indexes = (
            self.runnable,
            self.of_tenant,
            self.held,
            self.stopping,
            self.members,
            self.unended,
            self.held_back,
        )
        for index in indexes:
            for key in [key for key, members in index.items() if not members]:
                del index[key]  # type: ignore[arg-type]

    def _enter(self, row: Row) -> None:
        new, job_id, state = row.new, row.id, row.state
        if new.key is not None:
            self.by_key[new.kind, new.key] = job_id
        if row.step is not None:
            self._join(row.step, row)
        if row.finished_at_ms is not None:
            rank = rank_by_time(row.finished_at_ms, job_id)
            self._ended(row)[state].add(rank)
            return
        if state is _RUNNABLE:
            self._begin_to_wait(row)
        elif state is _PENDING:
            self.pending.add(rank_by_time(row.run_at_ms, job_id))
        elif row.held is not None:
            self._hold(job_id, row.held)
        self.unfinished += 1
        if new.unique is not None:
            self.by_unique[new.kind, new.unique] = job_id
        if state is _WAITING and row.shared is not None and row.shared.waits:
            self.waiting[new.kind, row.shared.text] = job_id
        if row.expires_at_ms is not None and not row.attempt and state is not _WAITING:
            self.expiring.add(rank_by_time(row.expires_at_ms, job_id))

    def _join(self, step: int, row: Row) -> None:
        self.members[step].add(row.id)
        if row.finished_at_ms is None:
            self.unended[step].add(row.id)
        if row.state is _WAITING:
            self.held_back[step].add(row.id)

    def _ended(self, row: Row) -> dict[JobState, RankSet]:
        return self.finished if row.step is None else self.finished_members

    def _hold(self, job_id: int, held: Held) -> None:
        self.held[held.run_id].add(job_id)
        if held.cancel_requested:
            self.stopping[held.run_id].add(job_id)

    def _leave(self, row: Row) -> None:
        new, job_id, state = row.new, row.id, row.state
        if new.key is not None:
            del self.by_key[new.kind, new.key]
        if row.step is not None:
            self.members[row.step].discard(job_id)
            self.unended[row.step].discard(job_id)
            self.held_back[row.step].discard(job_id)
        if row.finished_at_ms is not None:
            rank = rank_by_time(row.finished_at_ms, job_id)
            self._ended(row)[state].discard(rank)
            return
        if state is _RUNNABLE:
            self._cease_to_wait(row)
        elif state is _PENDING:
            self.pending.discard(rank_by_time(row.run_at_ms, job_id))
        elif row.held is not None:
            self.held[row.held.run_id].discard(job_id)
            self.stopping[row.held.run_id].discard(job_id)
        self.unfinished -= 1
        if new.unique is not None:
            del self.by_unique[new.kind, new.unique]
        if state is _WAITING and row.shared is not None and row.shared.waits:
            del self.waiting[new.kind, row.shared.text]
        if row.expires_at_ms is not None and not row.attempt and state is not _WAITING:
            self.expiring.discard(rank_by_time(row.expires_at_ms, job_id))

    def _begin_to_wait(self, row: Row) -> None:
        new = row.new
        rank = rank_by_priority(new.priority, row.run_at_ms, row.id)
        self.runnable[new.pool, new.kind].add(rank)
        if new.tenant is not None:
            self.of_tenant[new.tenant].add(rank_by_time(row.run_at_ms, row.id))
        if not self.lanes.rules.is_empty:
            self.lanes.enter(rank, row)

    def _cease_to_wait(self, row: Row) -> None:
        new = row.new
        rank = rank_by_priority(new.priority, row.run_at_ms, row.id)
        self.runnable[new.pool, new.kind].discard(rank)
        if new.tenant is not None:
            self.of_tenant[new.tenant].discard(rank_by_time(row.run_at_ms, row.id))
        if not self.lanes.rules.is_empty:
            self.lanes.leave(rank, row)
