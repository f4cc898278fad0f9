"""Whose jobs are taken back where there are no supervisors."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.runs import Run
from jobpool.supervisor.dev.neighbours import Neighbours
from jobpool.supervisor.maintenance.lost_jobs import PublishedPolicies


@pytest.fixture
def gone():
    """Return the number of no process: that of one that has ended may be had again."""
    return 2**22


def run_of(name, pid, **facts):
    shape = {"host": "here", "boot_id": "", "pid_namespace": 0, "version": "1"}
    return Run(id=name, pid=pid, **(shape | facts))


def looked(run, *, shared=False, may_take=False, ttl_s=60.0):
    """Return what becomes of the one job of a run, after a look."""
    clock = SystemClock()
    store = MemoryStore(
        MemoryDatabase("x"), clock=clock, admission=Admission(), run_root=Path("/x")
    )
    own = run_of("own", os.getpid())
    store.begin_run(own, [], 60.0)
    store.begin_run(run, [], ttl_s)
    store.enqueue([NewJob(kind="x", pool="io", payload=b"{}")])
    (lease,) = store.lease(run.id, {"io": 1}, {"io": ["x"]}).leases
    neighbours = Neighbours(
        own,
        store=SimpleNamespace(shared=shared),
        registry=PublishedPolicies([]),
        may_take=lambda: may_take,
        on_first_check=lambda _store: (),
        clock=clock,
    )
    neighbours._look(store)
    return store.get(lease.id).state


def test_a_run_whose_process_is_gone_is_dead(gone):
    assert looked(run_of("a", gone)) is JobState.PENDING


def test_a_run_whose_process_lives_is_not():
    assert looked(run_of("a", os.getppid())) is JobState.LEASED


def test_on_a_store_of_one_host_its_name_does_not_matter(gone):
    """That of a laptop changes with its network."""
    assert looked(run_of("a", gone, host="elsewhere")) is JobState.PENDING


def test_nothing_is_known_of_processes_of_other_hosts(gone):
    run = run_of("a", gone, host="elsewhere")
    assert looked(run, shared=True) is JobState.LEASED


def test_nor_of_those_of_a_supervisor_which_only_one_may_judge(gone):
    """It may have left children behind."""
    assert looked(run_of("a", gone, pid_namespace=4711)) is JobState.LEASED


@pytest.mark.parametrize("may_take", [True, False])
def test_a_lease_that_is_over_is_taken_if_the_store_was_there_all_the_while(may_take):
    run = run_of("a", os.getppid(), host="elsewhere")
    state = looked(run, shared=True, may_take=may_take, ttl_s=0.0)
    assert state is (JobState.PENDING if may_take else JobState.LEASED)
