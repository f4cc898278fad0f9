"""Concurrency on PostgreSQL: another transaction commits between any two statements."""

import threading

import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.admission import Admission
from jobpool.errors import JobpoolBug, JobpoolError, StoreRefused
from jobpool.store.opening import open_store
from jobpool.store.postgres.store import PostgresStore
from jobpool.store.records.operating import Filter
from jobpool.store.records.runs import Renewal
from support.postgres.patient_locks import patient_locks
from support.postgres.server import server, with_query
from support.store.storing import KINDS, begin_run, handed_back, lease_one, new_job
from support.waiting import in_thread, wait_until

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name = 'jobpool'
"""


@pytest.fixture(scope="module", autouse=True)
def _locks_are_waited_for():
    with patient_locks():
        yield


def somebody_waits():
    """Say whether a session of ours waits for a lock."""
    with server().connect() as connection:
        return connection.execute(WAITING).fetchone()[0] > 0


@pytest.fixture
def pair(store_factory):
    """Two supervisors, each with a run of its own."""
    stores = store_factory(), store_factory()
    for store, run_id in zip(stores, ("a", "b"), strict=True):
        begin_run(store, run_id)
    return stores


def test_a_run_does_not_end_while_a_lease_of_it_is_being_committed(pair):
    """The lease would belong to no run: ending the run waits, and then sees it."""
    first, second = pair
    second.enqueue([new_job()])
    with first.transaction():
        assert len(first.lease("a", {"cpu": 1}, KINDS).leases) == 1
        end = in_thread(lambda: second.end_run("a"))
        wait_until(somebody_waits, 60, "the end waits for the lease")
    wait_until(lambda: end, 60, "the end of the call")
    assert isinstance(end[0], JobpoolBug), end
    assert len(second.leases_of("a")) == 1


@pytest.mark.parametrize("held", [100, 1000])
def test_one_that_wants_few_jobs_gets_them_beside_one_that_takes_many(pair, held):
    """It passes over whatever the other holds; what is best behind that it gets."""
    first, second = pair
    jobs = second.enqueue([new_job()] * (held + 3))
    with first.transaction():
        assert len(first.lease("a", {"cpu": held}, KINDS).leases) == held
        batch = second.lease("b", {"cpu": 2}, KINDS)
    assert [lease.id for lease in batch.leases] == [job.id for job in jobs[held:][:2]]
    assert batch.next_due_in_s == 0.0


def test_one_is_told_to_ask_again_while_another_holds_all_jobs(pair):
    """It may roll back."""
    first, second = pair
    second.enqueue([new_job()] * 50)
    with first.transaction():
        assert len(first.lease("a", {"cpu": 50}, KINDS).leases) == 50
        batch = second.lease("b", {"cpu": 2}, KINDS)
    assert batch.leases == ()
    assert batch.next_due_in_s == 0.0
    assert second.lease("b", {"cpu": 2}, KINDS).next_due_in_s is None


def test_two_prunes_at_once_keep_the_count(pair):
    """What one is deleting, the other neither deletes again nor makes up for."""
    first, second = pair
    second.cancel([one.id for one in second.enqueue([new_job()] * 6)])
    kept = Retention(canceled_count=3)
    with first.transaction():
        assert first.prune(kept, limit=2) == 2
        assert second.prune(kept, limit=2) == 0
        assert second.prune(kept, limit=5) == 1
    assert second.prune(kept) == 0
    assert second.count(Filter(states=(JobState.CANCELED,))) == 3


def test_a_run_whose_leases_were_taken_gets_no_more(pair):
    """A lease requested meanwhile is refused, not granted to a dead run."""
    first, second = pair
    second.enqueue([new_job()])
    with second.transaction():
        assert second.leases_of("a") == []
        answer = in_thread(lambda: first.lease("a", {"cpu": 1}, KINDS))
        wait_until(somebody_waits, 60, "the lease waits")
        second.end_run("a")
    wait_until(lambda: answer, 60, "the end of the call")
    assert isinstance(answer[0], StoreRefused), answer


def test_a_run_in_the_middle_of_a_transaction_is_not_seized_or_waited_for(pair, clock):
    """Its own transaction holds its row: it lives, or its connection does."""
    first, second = pair
    second.enqueue([new_job()])
    clock.advance(59)
    with first.transaction():
        first.lease("a", {"cpu": 1}, KINDS)
        clock.advance(2)
        with second.transaction():
            # A wait would end in an error: this thread keeps the row.
            assert not second.seize("a")
    with second.transaction():
        assert second.seize("a")


def test_a_supervisor_whose_own_lease_lapsed_seizes_no_run(store_factory, clock):
    """If the clock has jumped, every lease has expired: that proves nothing."""
    store = store_factory()
    begin_run(store, "a")
    begin_run(store, "b")
    clock.advance(61)
    with store.transaction():
        assert not store.seize("a", by="b")
    store.renew("b", 60, anew=True)
    with store.transaction():
        assert store.seize("a", by="b")
        assert not store.seize("a", lapsed_s=5.0)
        assert not store.seize("b", by="a")


def test_a_cancel_during_a_hand_back_takes_effect(pair):
    """The job is handed back at the same time: it is canceled all the same."""
    first, second = pair
    second.enqueue([new_job()])
    held = lease_one(first, "a")
    with first.transaction():
        first.settle([handed_back(held)])
        canceled = in_thread(lambda: second.cancel([held.id]))
        wait_until(somebody_waits, 60, "the cancel waits")
    wait_until(lambda: canceled, 60, "the end of the call")
    assert canceled == [1]
    assert second.get(held.id).state is JobState.CANCELED


def test_operators_do_not_deadlock(pair):
    """Whatever the order of their ids, they lock the rows in one order."""
    first, second = pair
    failures = []

    def operate(store, ids):
        try:
            for _ in range(15):
                store.cancel(ids)
                store.revive(ids, (JobState.CANCELED,))
        except JobpoolError as error:
            failures.append(error)

    ids = [made.id for made in first.enqueue([new_job()] * 300)]
    threads = [
        threading.Thread(target=operate, args=(first, ids)),
        threading.Thread(target=operate, args=(second, ids[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_plans_kept_from_a_small_table_serve_a_large_one(store_factory):
    """A lease and a single enqueue touch no more rows, although statistics are old."""
    store = store_factory()
    begin_run(store, "a")
    jobs, connection = uncounted_jobs(store)
    few = max(touched(store, jobs) for _ in range(12))
    plans = connection.execute(
        "SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements "
        "WHERE statement LIKE %s AND cardinality(parameter_types) > 0",
        [f"%{jobs}%"],
    ).fetchone()
    assert plans[0] > 3 * 6
    assert plans[1] == 0
    store.enqueue([new_job()] * 20_000)
    assert max(touched(store, jobs) for _ in range(3)) < few + 50


def test_all_other_plans_are_made_for_each_execution(store_factory):
    """For a transaction that does more: for the table as it is."""
    store = store_factory()
    begin_run(store, "a")
    jobs, connection = uncounted_jobs(store)
    few = max(touched(store, jobs, settle=True) for _ in range(12))
    plans = connection.execute(
        "SELECT sum(generic_plans) FROM pg_prepared_statements "
        "WHERE statement LIKE %s AND statement LIKE %s",
        [f"%{jobs}%", "%settle%"],
    ).fetchone()
    assert not plans[0]
    store.enqueue([new_job()] * 20_000)
    assert max(touched(store, jobs, settle=True) for _ in range(3)) < few + 50


def uncounted_jobs(store):
    """Return the jobs' table, whose statistics are no longer updated."""
    connection = store._server._session.connection
    jobs = f"{store._server.address.schema}.jobs"
    connection.execute(f"ALTER TABLE {jobs} SET (autovacuum_enabled = off)")
    return jobs, connection


def touched(store, jobs, *, settle=False):
    """Return how many rows of jobs are touched to store one and lease one."""
    session = store._server._session
    with store.transaction():
        store.enqueue([new_job()])
        leases = store.lease("a", {"cpu": 1}, KINDS).leases
        if settle:
            store.settle([handed_back(one) for one in leases])
        rows = session.connection.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
            "WHERE relid = %s::regclass",
            [jobs],
        ).fetchone()
    assert len(leases) == 1
    return rows[0]


def test_a_reload_with_a_shorter_ttl_does_not_shorten_the_lease(store, clock):
    """The supervisor relies on the longer one until its next renewal."""
    begin_run(store, ttl_s=60)
    begin_run(store, ttl_s=5)
    clock.advance(30)
    assert store.renew("run-1", 5) is Renewal.HELD
    clock.advance(6)
    assert store.renew("run-1", 60) is Renewal.LAPSED


def test_an_interrupted_transaction_is_undone_and_the_store_works_on(store):
    """Ctrl-C at any time: nothing of it happened, and the next call works."""

    def interrupted():
        with store.transaction():
            store.enqueue([new_job()])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.count(Filter()) == 0
    for _ in range(8):  # often enough for what is prepared to be prepared
        store.enqueue([new_job()])
    assert store.count(Filter()) == 8


def test_the_clock_of_a_read_only_store_goes_on(new_store_url):
    """The age of waiting jobs grows from query to query."""
    url = new_store_url()
    with_jobs = open_store(url)
    with_jobs.enqueue([new_job()])
    with_jobs.close()
    reader = open_store(url)
    first = reader.waiting()[0].oldest_age_s
    wait_until(lambda: reader.waiting()[0].oldest_age_s > first + 0.05, 60, "it ages")
    reader.close()


@pytest.mark.parametrize("word", ["user", "order", "table"])
def test_a_schema_named_like_an_sql_keyword_is_refused(word):
    """With the remedy, and before anything is made."""
    url = with_query(server().url, schema=word)
    with pytest.raises(StoreRefused, match=f"schema {word}, which is a reserved"):
        PostgresStore(url, clock=None, create=True, admission=Admission(depth_max=10))


def test_a_run_whose_lease_expired_a_month_ago_is_ended(store, clock):
    """Unless it still holds leases: those are to be taken over."""
    begin_run(store, "holding", ttl_s=60)
    begin_run(store, "gone", ttl_s=60)
    store.enqueue([new_job()])
    lease_one(store, "holding")
    store.renew("gone", 60, anew=True)
    store.end_run("run-1")
    clock.advance(60 + 30 * 86_400)
    store.prune(Retention())
    assert {run.id for run in store.open_runs()} == {"holding", "gone"}
    clock.advance(0.001)
    store.prune(Retention())
    assert [run.id for run in store.open_runs()] == ["holding"]
