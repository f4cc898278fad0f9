"""The client over a real SQLite store: durable, transactional, threads and forks."""

import json
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from jobpool import (
    JobNotFound,
    JobPool,
    KeyConflict,
    StoreError,
    UsageError,
    WaitTimeout,
)
from jobpool.core.jobs.job import JobState
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter

WAIT_S = 60


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def jobs(url):
    pool = JobPool(url)
    yield pool
    pool.close()


@pytest.fixture
def add(jobs):
    @jobs.job("cpu", kind="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    return add


@pytest.fixture
def connection(jobs, add, tmp_path):
    add.enqueue(0)  # makes the database
    connection = sqlite3.connect(
        tmp_path / "jobs.db", timeout=WAIT_S, isolation_level=None
    )
    connection.execute("CREATE TABLE orders (number INTEGER)")
    yield connection
    connection.close()


def count(url):
    store = open_store(url)
    try:
        return store.count(Filter())
    finally:
        store.close()


def test_an_enqueued_job_is_in_the_file(url, jobs, add):
    """Another connection sees it, with its payload and options."""
    job = add.options(priority=7, tenant="t", run_in="1h", timeout="3s").enqueue(1, b=2)
    store = open_store(url)
    stored = store.get(job.id)
    assert (stored.kind, stored.pool, stored.priority) == ("add", "cpu", 7)
    assert (stored.tenant, stored.timeout_s) == ("t", 3.0)
    assert stored.state is JobState.PENDING
    assert json.loads(store.payload(job.id)) == {"a": 1, "b": 2}
    store.close()


def test_the_store_is_found_as_the_supervisor_finds_it(tmp_path, monkeypatch):
    """Argument, then JOBPOOL_STORE, then the configuration, then the default."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "jobpool.toml").write_text('store = "sqlite:///shop.db"\n')
    monkeypatch.delenv("JOBPOOL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    opened = []

    def opens(argument=None):
        jobs = JobPool(argument)
        opened.append(jobs)
        job = jobs.job("cpu", kind="k")(lambda: None).enqueue()
        return job._gateway.store("test").url

    configured = opens()
    assert configured.endswith("shop.db")
    monkeypatch.setenv("JOBPOOL_STORE", f"sqlite:///{tmp_path}/env.db")
    assert opens() == f"sqlite:///{tmp_path}/env.db"
    assert opens(f"sqlite:///{tmp_path}/named.db") == f"sqlite:///{tmp_path}/named.db"
    for jobs in opened:
        jobs.close()


def test_nothing_is_opened_before_it_is_needed(tmp_path):
    """A JobPool at a module's top level costs nothing."""
    jobs = JobPool(f"sqlite:///{tmp_path}/jobs.db")
    jobs.job("cpu", kind="k")(lambda: None)
    jobs.handler_specs()
    assert list(tmp_path.iterdir()) == []


def test_keys_and_unique_texts(add):
    """The same job is returned; other arguments conflict."""
    first = add.options(key="k", unique="u").enqueue(1)
    again = add.options(key="k", unique="u").enqueue(1)
    other = add.options(unique="u").enqueue(2)
    assert (first.created, again.created, other.created) == (True, False, False)
    assert {first.id} == {again.id, other.id}
    with pytest.raises(KeyConflict) as caught:
        add.options(key="k").enqueue(2)
    assert caught.value.job_id == first.id


def test_many_jobs_are_stored_in_order(url, jobs, add):
    """Ids grow in the order of the items."""
    assert jobs.enqueue_many(add, ({"a": number} for number in range(2500))) == 2500
    assert count(url) == 2500
    store = open_store(url)
    assert [json.loads(store.payload(i))["a"] for i in (1, 1000, 2500)] == [
        0,
        999,
        2499,
    ]
    store.close()


def test_the_steps_of_an_operator(jobs, add):
    """cancel, retry and release change the stored job."""
    job = add.enqueue(1)
    assert jobs.get(job.id) == job
    assert jobs.get(job.ref) == job
    assert job.cancel()
    assert job.state == "canceled"
    assert not job.cancel()
    assert not jobs.release(job.id)
    assert not jobs.release(job.id, memory="2GiB")
    with pytest.raises(UsageError, match="memory: 'much' is not a size"):
        jobs.release(job.id, memory="much")
    assert jobs.retry(job.id)
    assert job.state == "runnable"
    with pytest.raises(WaitTimeout):
        jobs.wait(job.id, timeout="10ms")
    for unknown in (99, 0, -1, 2**63, 10**400):
        with pytest.raises(JobNotFound):
            jobs.get(unknown)


def test_a_canceled_job_ends_the_wait(add):
    """A waiting thread sees the change of another."""
    job = add.enqueue(1)
    states = []
    thread = threading.Thread(target=lambda: states.append(job.wait(WAIT_S)))
    thread.start()
    job.cancel()
    thread.join(WAIT_S)
    assert states == [JobState.CANCELED]


def test_a_job_and_a_row_commit_together(url, jobs, add, connection):
    """Both or neither: that is what the caller's transaction is for."""
    with jobs.transaction(connection):
        connection.execute("INSERT INTO orders VALUES (1)")
        job = add.options(connection=connection).enqueue(1)
    assert job.state == "runnable"
    lost = []

    def fail():
        with jobs.transaction(connection):
            connection.execute("INSERT INTO orders VALUES (2)")
            lost.append(add.options(connection=connection).enqueue(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert connection.execute("SELECT number FROM orders").fetchall() == [(1,)]
    with pytest.raises(JobNotFound):
        lost[0].info()
    assert count(url) == 2


def test_a_transaction_that_the_caller_began_is_joined(add, connection):
    """`connection=` alone neither begins nor commits."""
    connection.execute("BEGIN")
    connection.execute("INSERT INTO orders VALUES (1)")
    job = add.options(connection=connection).enqueue(1)
    with pytest.raises(JobNotFound):
        job.info()
    connection.execute("COMMIT")
    assert job.state == "runnable"


def test_bulk_joins_a_transaction_too(url, jobs, add, connection):
    """All of its batches vanish with a rollback."""
    connection.execute("BEGIN")
    bound = add.options(connection=connection)
    assert jobs.enqueue_many(bound, [{"a": 1}] * 1500) == 1500
    connection.execute("ROLLBACK")
    assert count(url) == 1


def test_a_connection_to_another_file_is_refused(add, tmp_path):
    """The job would be stored elsewhere than the caller thinks."""
    add.enqueue(1)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    with pytest.raises(UsageError, match=r"other\.db"):
        add.options(connection=other).enqueue(1)
    other.close()
    with pytest.raises(UsageError, match="closed"):
        add.options(connection=other).enqueue(1)


def test_other_threads_write_while_one_holds_a_transaction(url, jobs, add, connection):
    """They wait their turn. None waits forever, and nothing is lost."""
    go = threading.Event()

    def enqueue():
        go.wait(WAIT_S)
        for number in range(5):
            add.enqueue(number)

    threads = [threading.Thread(target=enqueue) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(5):
        with jobs.transaction(connection):
            go.set()
            add.options(connection=connection).enqueue(number)
    for thread in threads:
        thread.join(WAIT_S)
    assert count(url) == 1 + 20 + 5


def test_a_fork_goes_on_with_a_connection_of_its_own(url, add):
    """Parent and child may both enqueue after the fork."""
    add.enqueue(1)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if add.enqueue(2).created else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    add.enqueue(3)
    assert count(url) == 3


def test_a_missing_directory_is_reported(tmp_path):
    """The error names it; nothing is enqueued."""
    jobs = JobPool(f"sqlite:///{tmp_path}/gone/jobs.db")
    handler = jobs.job("cpu", kind="k")(lambda: None)
    with pytest.raises(StoreError, match="gone"):
        handler.enqueue()


SCRIPT = """
import jobpool
jobs = jobpool.JobPool()

@jobs.job("cpu")
def add(a: int, b: int = 1) -> int:
    return a + b

if __name__ == "__main__":
    job = add.enqueue(1)
    print(job.id, job.kind, job.state)
"""


def test_a_script_enqueues_what_the_supervisor_will_know(tmp_path):
    """Run as a script, its kinds are those of the imported module."""
    (tmp_path / "jobs.py").write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL")}
    run = subprocess.run(
        [sys.executable, "jobs.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout == "1 jobs:add runnable\n"
    assert (tmp_path / "jobpool.db").exists()
