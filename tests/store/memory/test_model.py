"""The store in memory against the plain model, and against SQLite.

The rules are in ``store_machine``. Beside SQLite every answer of one is compared with
the other's, and so is everything that people can see.
"""

from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import FINISHED, JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.memory.tables.jobs import JobTable
from jobpool.store.records.operating import Filter
from support.store.hypothesis_machine import StoreMachine, depth
from support.store.model import KINDS, REVIVABLE
from support.store.storing import (
    begin_run,
    ended,
    kind_record,
    new_job,
    started,
    succeeded,
)
from support.store.twins import Names, Twins

SHORTLY = Retention(**{f"{state}_s": 0.0 for state in FINISHED})


class MemoryMachine(StoreMachine):
    """The model beside a store in memory, whose indexes must match its rows."""

    def make_store(self):
        self.database = MemoryDatabase("model")
        return lambda: MemoryStore(
            self.database,
            clock=self.clock,
            admission=Admission(depth_max=10**6),
            run_root=Path("/nonexistent"),
        )

    @rule(which=st.integers(0, 1))
    def fail_after_many_changes(self, which):
        """Nothing of a failed transaction is left or has been seen by others."""
        mine, other = self.stores[which], self.stores[1 - which]
        before = seen(other)
        with pytest.raises(ZeroDivisionError), mine.transaction():  # noqa: PT012 - others read before the end
            change_everything(mine, self.runs[which])
            assert seen(mine) != before
            assert seen(other) == before
            raise ZeroDivisionError
        assert seen(mine) == before

    @invariant()
    def indexes_hold(self):
        table = self.database.jobs
        fresh = JobTable()
        for row in sorted(table.newest_first(), key=lambda row: row.id):
            fresh.put(row.id, row)
        assert indexes(table) == indexes(fresh)


class MemoryTwinMachine(MemoryMachine):
    """The model beside SQLite and memory; each answer must equal the other's."""

    def make_store(self):
        open_left = super().make_store()
        open_right = StoreMachine.make_store(self)
        names = Names()
        return lambda: Twins(open_left(), open_right(), names)

    def fail_after_many_changes(self, which):
        """SQLite reuses ids of a failed transaction: names would be confused."""

    def teardown(self):
        try:
            for job in self.stores[0].find(Filter(), 10**6):
                self.stores[0].get(job.id)
                self.stores[0].payload(job.id)
                self.stores[0].attempts(job.id)
        finally:
            super().teardown()

    @invariant()
    def people_see_the_same(self):
        store = self.stores[0]
        store.groups(Filter())
        store.stats()
        store.figures()
        store.waiting()
        store.paused()
        store.open_runs()
        store.due(KINDS, 3)


def change_everything(store, run_id):
    """Use every method of the protocol on one store, in its transaction."""
    store.enqueue([new_job("a", key="k9", unique="u9", delay_ms=5), new_job("c", "io")])
    begin_run(store, "another", kinds=[kind_record("a")])
    store.pause(kind="c")
    ids = [job.id for job in store.find(Filter(), 10**6)]
    granted = store.lease(run_id, {"cpu": 3}, KINDS).leases
    store.begin_attempts([started(one, "cpu/0") for one in granted])
    store.record([Progress(one.id, one.token, b"1", b"2") for one in granted])
    store.settle([succeeded(one) for one in granted[:1]])
    store.settle([ended(one, Outcome.LOST) for one in granted])
    store.cancel(ids[::2])
    store.revive(ids[::3], REVIVABLE)
    store.forget(ids[::4])
    store.prune(SHORTLY)
    store.renew(run_id, 1)


def seen(store):
    """Return everything that a store can show."""
    jobs = store.find(Filter(), 10**6)
    return (
        jobs,
        [(store.payload(job.id), store.attempts(job.id)) for job in jobs],
        [store.leases_of(run.id) for run in store.open_runs()],
        [store.cancel_requests(run.id) for run in store.open_runs()],
        [store.count(Filter(states=(state,))) for state in JobState],
        store.count(Filter()),
        store.open_runs(),
        store.kinds(),
        store.paused(),
        store.stats(),
        store.figures(),
        store.waiting(),
        store.due(KINDS, 10**6),
        store.describe(),
    )


def indexes(table):
    """Return what the indexes of a table hold, in order; empty ones do not count."""
    return (
        table.unfinished,
        table.by_key,
        table.by_unique,
        {key: in_order(ranks) for key, ranks in table.runnable.items() if ranks},
        in_order(table.pending),
        in_order(table.expiring),
        {run_id: ids for run_id, ids in table.held.items() if ids},
        {run_id: ids for run_id, ids in table.stopping.items() if ids},
        {state: in_order(ranks) for state, ranks in table.finished.items()},
    )


def in_order(ranks):
    """Return the members of a set of ranks as it yields them, the lowest first."""
    found = list(ranks.lowest(10**9))
    assert found == sorted(ranks)
    assert ranks.first() == (found[0] if found else None)
    return found


TestMemoryModel = MemoryMachine.TestCase
TestMemoryModel.settings = depth(80, 50)
TestMemoryTwins = MemoryTwinMachine.TestCase
TestMemoryTwins.settings = depth(20, 40)
