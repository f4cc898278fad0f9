"""Jobs that are stored together know their ids, whatever was written by hand."""

import sqlite3
from contextlib import closing

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.errors import StoreFull, StoreRefused
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.store.storing import begin_run, ended, lease, new_job

MANY = 5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path):
    store = open_store(f"sqlite:///{path}")
    yield store
    store.close()


def by_hand(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def stored(store, count=MANY):
    """Store jobs that differ in their payloads; return them as stored."""
    payloads = [b'{"n": %d}' % number for number in range(count)]
    answers = store.enqueue([new_job(payload=one) for one in payloads])
    assert [store.payload(answer.id) for answer in answers] == payloads
    return [answer.id for answer in answers]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "DELETE FROM jobpool_jobs WHERE id > 3",
        "DELETE FROM sqlite_sequence WHERE name = 'jobpool_jobs'",
        "UPDATE sqlite_sequence SET seq = 70 WHERE name = 'jobpool_jobs'",
        "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'jobpool_jobs'",
    ],
)
def test_each_job_has_its_own_payload(store, path, statement):
    """Ids grow and are never repeated."""
    before = stored(store)
    by_hand(path, statement)
    after = stored(store)
    assert after == sorted(after)
    assert not set(before[:3]) & set(after)


END = 9223372036854775807


@pytest.mark.parametrize("column", ["id", "seq"])
def test_a_job_with_the_largest_id_does_not_block_others(store, path, column):
    """It gets an ordinary id and is set aside; no id is repeated."""
    before = stored(store)
    if column == "id":
        by_hand(path, "UPDATE jobpool_jobs SET id = 9223372036854775807 WHERE id = 1")
        by_hand(
            path,
            "UPDATE jobpool_payloads SET job_id = 9223372036854775807 WHERE job_id = 1",
        )
    else:
        by_hand(path, "UPDATE sqlite_sequence SET seq = 9223372036854775807")
    with pytest.raises(StoreFull):
        stored(store)
    store.scrub(None)
    after = stored(store)
    assert not {*before, END} & {*after}
    assert store.get(END) is None
    dead = store.find(Filter(states=(JobState.DEAD,)))
    assert len(dead) == (column == "id")
    for job in dead:
        assert "cannot be read (id:" in job.reason
        assert store.payload(job.id) == b'{"n": 0}'


def test_ids_of_deleted_jobs_are_not_used_again(store, path):
    """A client that still has such an id would read another job by it."""
    before = stored(store)
    by_hand(path, "DELETE FROM jobpool_jobs")
    by_hand(path, "UPDATE sqlite_sequence SET seq = 9223372036854775807")
    store.scrub(None)
    assert min(stored(store)) > max(before)


def test_a_listing_ends_at_the_smallest_id(store, path):
    """The page before a job with id 0, written by hand, is empty, and not itself."""
    stored(store)
    by_hand(path, "UPDATE jobpool_jobs SET id = 0 WHERE id = 1")
    assert [job.id for job in store.find(Filter(), before_id=3)] == [2, 0]
    assert store.find(Filter(), before_id=0) == []


def test_an_attempt_with_the_largest_id_does_not_block_others(store, path):
    """Ends are written again after the next repair."""
    begin_run(store)
    stored(store)
    first, second, *_ = lease(store)
    store.settle([ended(first)])
    by_hand(path, "UPDATE jobpool_attempts SET id = 9223372036854775807")
    with pytest.raises(StoreFull):
        store.settle([ended(second)])
    store.scrub(None)
    store.settle([ended(second)])
    assert [len(store.attempts(one.id)) for one in (first, second)] == [1, 1]


TRIGGER = """
CREATE TRIGGER follow_up AFTER INSERT ON jobpool_jobs WHEN NEW.kind <> 'other'
BEGIN
  INSERT INTO jobpool_jobs (kind, pool, state, created_at_ms, run_at_ms)
  VALUES ('other', 'cpu', 'runnable', 1, 1);
END
"""


def test_rows_inserted_between_by_a_trigger_are_refused(store, path):
    """Payloads would go to the wrong jobs. One job alone has nothing in between."""
    by_hand(path, TRIGGER)
    with pytest.raises(StoreRefused, match="remove it; nothing was enqueued"):
        store.enqueue([new_job() for _ in range(MANY)])
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT count(*) FROM jobpool_jobs").fetchone() == (0,)
    stored(store, count=1)


@pytest.mark.parametrize(
    "jobs",
    [
        [new_job()],
        [new_job() for _ in range(MANY)],
        [new_job(priority=number) for number in range(MANY)],
    ],
    ids=["one", "alike", "others"],
)
def test_rows_left_out_by_a_trigger_are_refused(store, path, jobs):
    """No job is acknowledged that does not exist."""
    stored(store)
    by_hand(
        path,
        "CREATE TRIGGER leave_out BEFORE INSERT ON jobpool_jobs "
        "BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY)",
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        with store.caller_transaction(own):
            own.execute("INSERT INTO orders VALUES (777)")
            with pytest.raises(StoreRefused, match="remove it"):
                store.enqueue(jobs, connection=own)
        left = own.execute("SELECT job_id FROM jobpool_payloads").fetchall()
    assert len(left) == MANY


def test_a_callers_temporary_tables_do_not_disturb_the_ids(store, path):
    """It says nothing about the jobs' ids."""
    before = stored(store)
    by_hand(path, "DELETE FROM jobpool_payloads", "DELETE FROM jobpool_jobs")
    with closing(sqlite3.connect(path, isolation_level=None)) as own:
        own.execute("CREATE TEMP TABLE work (id INTEGER PRIMARY KEY AUTOINCREMENT)")
        with store.caller_transaction(own):
            answers = store.enqueue([new_job() for _ in range(MANY)], connection=own)
    assert [answer.id for answer in answers] == [one + MANY for one in before]
