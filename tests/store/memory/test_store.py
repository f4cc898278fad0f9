"""What is particular about a store in memory: its ownership and its costs."""

import multiprocessing
import os
import threading

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.admission import Admission
from jobpool.errors import (
    ConfigError,
    JobpoolBug,
    KeyConflict,
    StoreUnavailable,
    UsageError,
)
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.memory.tables.jobs import JobTable
from jobpool.store.opening import open_store
from jobpool.store.protocol import is_shared
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.operating import Filter
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    lease,
    lease_one,
    make_waiting,
    new_job,
    succeeded,
)
from support.waiting import wait_until

EVERYTHING = Filter()
NOTHING_KEPT = Retention(succeeded_s=0, canceled_s=0, dead_s=0, quarantined_s=0)
FORKING = multiprocessing.get_context("fork")


class Interrupting(list):
    """Jobs that are read twice: first checked in full, then stored up to a Ctrl-C."""

    reads = 0

    def __iter__(self):
        self.reads += 1
        for place, job in enumerate(super().__iter__()):
            if self.reads == 2 and place == 2:
                raise KeyboardInterrupt
            yield job


def used_in_child(store, answers):
    """Try every method in a fork; return the errors."""
    for use in (
        lambda: store.enqueue([new_job()]),
        lambda: store.count(EVERYTHING),
        lambda: store.lease("run-1", {"cpu": 1}, {"cpu": ["shop.thumbnail"]}),
        lambda: store.transaction().__enter__(),
        store.changed,
        store.wake,
    ):
        try:
            use()
        except UsageError as error:
            answers.put(str(error))
        else:
            answers.put("was let in")
    store.close()


def test_no_url_names_a_store_in_memory(store):
    """Jobs that a client stores by a URL must outlive its process."""
    assert store.url == "memory:1"
    with pytest.raises(ConfigError, match="not the URL of a store"):
        open_store(store.url)


def test_a_store_in_memory_belongs_to_one_host(store, tmp_path):
    """Leases do not expire by time, and supervisors are woken through their FIFOs."""
    assert not is_shared(store)
    assert store.run_root == tmp_path / "jobs.run"
    assert store.concerns() == []


class Shared(MemoryStore):
    """A store that several hosts would share, as in the simulation."""

    one_host = False


def test_a_run_whose_lease_lapsed_gets_no_leases_where_leases_expire(clock, tmp_path):
    """Until it is renewed anew; nothing is changed meanwhile."""
    store = Shared(
        MemoryDatabase("1"),
        clock=clock,
        admission=Admission(depth_max=9),
        run_root=tmp_path,
    )
    begin_run(store, ttl_s=60.0)
    (made,) = store.enqueue([new_job(expires_in_ms=60_000)])
    clock.advance(60)
    batch = store.lease("run-1", {"cpu": 1}, KINDS)
    assert (batch.lapsed, batch.leases) == (True, ())
    assert store.get(made.id).state is JobState.RUNNABLE
    store.renew("run-1", 60.0, anew=True)
    batch = store.lease("run-1", {"cpu": 1}, KINDS)
    assert (batch.lapsed, batch.leases) == (False, ())
    assert store.get(made.id).state is JobState.CANCELED


def test_a_closed_store_releases_the_fifos_it_has_written_to(store_factory, tmp_path):
    """A closed store keeps no FIFO open."""
    run = tmp_path / "jobs.run" / "run-1"
    run.mkdir(parents=True)
    os.mkfifo(run / "wake")
    ear = os.open(run / "wake", os.O_RDONLY | os.O_NONBLOCK)
    store = store_factory()
    store.wake()
    store.wake()
    assert os.read(ear, 9) == b"\0\0"
    store.close()
    assert os.read(ear, 9) == b""  # The end of the file: it has no writer any more.
    os.close(ear)


def test_databases_in_memory_are_separate(store_factory, clock, tmp_path):
    """Whatever they are called: only stores given the same one share it."""
    store_factory().enqueue([new_job()])
    other = MemoryStore(
        MemoryDatabase("1"),
        clock=clock,
        admission=Admission(depth_max=9),
        run_root=tmp_path,
    )
    assert other.count(EVERYTHING) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_refused_because_its_jobs_would_be_lost(store):
    """Also while another thread holds the lock during the fork."""
    is_held, may_go = threading.Event(), threading.Event()

    def hold():
        with store.transaction():
            is_held.set()
            may_go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(30)
    answers = FORKING.SimpleQueue()
    child = FORKING.Process(target=used_in_child, args=(store, answers))
    child.start()
    may_go.set()
    said = [answers.get() for _ in range(6)]
    child.join(30)
    holder.join(30)
    assert child.exitcode == 0
    for answer in said:
        assert f"lives in the memory of process {os.getpid()}" in answer
    assert store.count(EVERYTHING) == 0


def test_a_callers_connection_is_refused(store):
    """No database transaction can include what is in memory."""
    with pytest.raises(UsageError, match="connection: the store memory:1 is in memory"):
        store.enqueue([new_job()], connection=object())
    with (
        pytest.raises(UsageError, match="connection: the store memory:1 is in memory"),
        store.caller_transaction(object()),
    ):
        pass
    assert store.count(EVERYTHING) == 0


def test_an_interrupted_batch_leaves_nothing(store):
    """Ctrl-C in the middle of a method is an exception like any other."""
    with pytest.raises(KeyboardInterrupt):
        store.enqueue(Interrupting([new_job(key=f"k{i}") for i in range(5)]))
    assert store.count(EVERYTHING) == 0
    assert lease(store) == ()
    (answer,) = store.enqueue([new_job(key="k0")])
    assert answer.created


@pytest.mark.parametrize("step", ["_leave", "_enter"])
@pytest.mark.parametrize("is_done", [False, True])
def test_an_interrupt_in_the_middle_of_a_change_leaves_nothing(
    store, clock, monkeypatch, step, is_done
):
    """An index that was changed halfway is rebuilt.

    The batch is undone like any other.
    """
    ids = [
        answer.id
        for answer in store.enqueue(
            [new_job(key=f"k{i}", unique=f"u{i}", expires_in_ms=9) for i in range(4)]
        )
    ]
    real, calls = getattr(JobTable, step), []

    def interrupted(table, row):
        calls.append(row)
        if len(calls) != 2:
            real(table, row)
            return
        if is_done:
            real(table, row)
        raise KeyboardInterrupt

    before = store.find(EVERYTHING)
    with monkeypatch.context() as patch:
        patch.setattr(JobTable, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.cancel(ids)
    assert store.find(EVERYTHING) == before
    table = store._database.jobs
    assert table.unfinished == 4
    assert sorted(table.by_key.values()) == sorted(table.by_unique.values()) == ids
    assert [granted.id for granted in lease(store, limit=3)] == ids[:3]
    clock.advance(1)
    assert lease(store) == ()
    assert store.get(ids[3]).state is JobState.CANCELED


def test_a_conflict_within_one_call_names_no_job(store):
    """The job that holds the key is not stored either. A stored one is named."""
    with pytest.raises(KeyConflict, match="an earlier job of this call") as refused:
        store.enqueue([new_job(key="k"), new_job(key="k", payload=b"2")])
    assert refused.value.job_id == 0
    (first,) = store.enqueue([new_job(key="k")])
    with pytest.raises(KeyConflict, match=f"job {first.id}") as refused:
        store.enqueue([new_job(), new_job(key="k", payload=b"2")])
    assert refused.value.job_id == first.id


def test_payloads_and_results_are_not_copied(store):
    """The same bytes objects that came in are leased, shown and returned."""
    payload, result = b"p" * 100_000, b"r" * 100_000
    store.enqueue([new_job(payload=payload)])
    granted = lease_one(store)
    store.settle([succeeded(granted, result)])
    assert granted.payload is payload
    assert store.payload(granted.id) is payload
    assert store.get(granted.id).result is result


def test_another_thread_sees_a_transaction_as_a_whole(store):
    """It waits for the end, through the same store object as well."""
    found, is_asking = [], threading.Event()

    def count():
        is_asking.set()
        found.append(store.count(EVERYTHING))

    counter = threading.Thread(target=count)
    with store.transaction():
        store.enqueue([new_job()])
        counter.start()
        assert is_asking.wait(30)
        store.enqueue([new_job()])
        assert found == []
    counter.join(30)
    assert found == [2]


def test_a_thread_does_not_wait_for_itself(store_factory):
    """Two store objects in one thread: if one is in a transaction, the other reads."""
    mine, other = store_factory(), store_factory()
    with mine.transaction():
        mine.enqueue([new_job(key="k")])
        with pytest.raises(StoreUnavailable, match="would wait for itself"):
            other.enqueue([new_job()])
        assert other.count(EVERYTHING) == 0
        assert mine.count(EVERYTHING) == 1
    assert [answer.created for answer in other.enqueue([new_job(key="k")])] == [False]


def test_only_a_committed_change_wakes_supervisors(store_factory):
    """Neither a failed transaction nor one without a change wakes a supervisor."""
    mine, other = store_factory(), store_factory()
    mine.changed()
    with pytest.raises(KeyConflict):
        other.enqueue([new_job(key="k"), new_job(key="k", payload=b"2")])
    other.cancel([999])
    mine.enqueue([new_job()])
    assert not mine.changed()
    other.enqueue([new_job()])
    assert mine.changed()


def test_a_run_whose_own_lease_lapsed_seizes_no_other(store, clock):
    """Its clock has jumped or it was away.

    A run is seized only after the time it asks for.
    """
    begin_run(store, "run-2", ttl_s=100)
    clock.advance(70)
    assert store.seize("run-1", by="run-2", lapsed_s=10)
    assert not store.seize("run-1", by="run-2", lapsed_s=10.001)
    assert not store.seize("run-2", by="run-1")
    clock.advance(30)
    assert not store.seize("run-1", by="run-2")
    assert not store.seize("run-1", by="nobody")
    assert store.seize("run-1")


def test_a_reload_shortens_no_lease(store, clock):
    """A run that asked for a longer lease keeps it."""
    begin_run(store, ttl_s=5)
    (run,) = store.open_runs()
    assert run.lease_until_ms == clock.utc_ms() + 60_000


def test_wake_reaches_a_supervisor_through_its_fifo(store):
    """The FIFO is in its run directory."""
    directory = store.run_root / "run-1"
    directory.mkdir(parents=True)
    os.mkfifo(directory / "wake")
    fd = os.open(directory / "wake", os.O_RDONLY | os.O_NONBLOCK)
    try:
        store.wake()
        assert os.read(fd, 100) == b"\0"
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "end",
    [
        {"state": JobState.LEASED},
        {"state": JobState.SUCCEEDED, "outcome": None},
    ],
    ids=str,
)
def test_an_end_that_no_lease_can_have_is_reported_as_a_bug(store, end):
    """The transition table forbids it; the whole batch is left as it was."""
    store.enqueue([new_job(), new_job()])
    good, bad = lease(store)
    spoilt = msgspec.structs.replace(succeeded(bad), **end)
    with pytest.raises(JobpoolBug, match="cannot go from leased"):
        store.settle([succeeded(good), spoilt])
    assert [one.token for one in store.leases_of("run-1")] == [good.token, bad.token]
    assert store.settle([succeeded(good)]) == [Receipt.ACCEPTED]


@pytest.mark.parametrize("state", list(JobState))
def test_forget_deletes_finished_jobs_only(store, state):
    """At once, with everything that belongs to them; the others stay as they are."""
    (answer,) = store.enqueue(
        [new_job(key="k", unique="u", delay_ms=9 * (state == "pending"))]
    )
    job_id = answer.id
    if state in {JobState.SUCCEEDED, JobState.LEASED}:
        granted = lease_one(store)
        store.settle([succeeded(granted)] * (state is JobState.SUCCEEDED))
    elif state in {JobState.DEAD, JobState.QUARANTINED}:
        crashed = ended(lease_one(store))
        store.settle([msgspec.structs.replace(crashed, state=state)])
    elif state is JobState.CANCELED:
        store.cancel([job_id])
    elif state is JobState.WAITING:
        make_waiting(store, job_id)
    before = store.get(job_id)
    assert before.state is state
    is_finished = before.finished_at_ms is not None
    assert store.forget([job_id, job_id, 999]) == int(is_finished)
    assert store.get(job_id) == (None if is_finished else before)
    assert (store.attempts(job_id) == []) or not is_finished
    (again,) = store.enqueue([new_job(key="k")])
    assert again.created == is_finished


def test_a_forgotten_job_is_there_again_if_the_transaction_fails(store):
    """In its old place among the others."""
    ids = [answer.id for answer in store.enqueue([new_job() for _ in range(3)])]
    store.cancel(ids)
    with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012 - both lines are the case
        assert store.forget(ids[:2]) == 2
        raise ZeroDivisionError
    assert [job.id for job in store.find(EVERYTHING)] == ids[::-1]


def test_an_empty_queue_leaves_nothing_in_memory(store, clock):
    """Kinds that were used once do not fill the memory forever."""
    kinds = [f"shop.k{number}" for number in range(50)]
    store.enqueue([new_job(kind, expires_in_ms=5, unique="u") for kind in kinds])
    for granted in lease(store, kinds={"cpu": kinds}):
        store.settle([succeeded(granted)])
    clock.advance(1)
    assert store.prune(NOTHING_KEPT) == 50
    jobs = store._database.jobs
    assert len(jobs) == jobs.unfinished == 0
    assert (jobs.by_key, jobs.by_unique, jobs.runnable, jobs.held) == ({}, {}, {}, {})
    assert store.waiting() == []


def test_a_failed_transaction_does_not_keep_others_out(store_factory):
    """The lock is free again, for other threads too."""
    mine, other = store_factory(), store_factory()
    with pytest.raises(ZeroDivisionError), mine.transaction():
        raise ZeroDivisionError
    begin_run(mine)
    thread = threading.Thread(target=other.enqueue, args=([new_job()],))
    thread.start()
    wait_until(lambda: mine.count(EVERYTHING) == 1, 30, "the other thread's job")
    thread.join(30)
    assert len(lease(mine)) == 1
