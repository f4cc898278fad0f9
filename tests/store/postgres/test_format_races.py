"""A feature comes into use while older runs begin, renew and lease: each sees it."""

import threading
from contextlib import suppress

import psycopg
import pytest
from psycopg import sql

from jobpool.core.formats import FORMAT
from jobpool.errors import FeatureHeldBack, StoreRefused
from jobpool.store.operations.runs import GONE_S
from jobpool.store.records.runs import Renewal
from support.postgres.patient_locks import patient_locks
from support.postgres.server import query_of, server
from support.store.storing import KINDS, begin_run, lease, new_job
from support.waiting import in_thread, wait_until

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name IN ('jobpool', 'of old')
"""
BEGIN_AS_OF_OLD = """
INSERT INTO {}.runs (
  id, host, boot_id, pid, pid_namespace, version, pools,
  started_at_ms, heartbeat_at_ms, lease_until_ms
)
VALUES ('old', 'a', 'boot', 17, 1, '0.1.0', '{{}}', 0, 0, 9000000000000)
"""
TTL_S = 10.0


@pytest.fixture(scope="module", autouse=True)
def _locks_are_waited_for():
    with patient_locks():
        yield


def somebody_waits():
    """Say whether a session waits for a lock."""
    with server().connect() as connection:
        return connection.execute(WAITING).fetchone()[0] > 0


@pytest.fixture
def pair(store_factory):
    """Two stores on one database, in which no run has begun."""
    return store_factory(), store_factory()


@pytest.fixture
def of_old(pair, store_url):
    """Return a function that enters a run as code from before formats did.

    It does something before it commits, and returns the error, if any.
    """
    del pair
    schema = query_of(store_url)["schema"]

    def begin(committed=lambda: None):
        with server().connect(store_url) as connection:
            connection.execute("SET application_name = 'of old'")
            try:
                with connection.transaction():
                    connection.execute(BEGIN_AS_OF_OLD.format(schema))
                    committed()
            except psycopg.Error as error:
                return error
        return None

    return begin


def test_a_run_that_has_just_begun_is_seen(pair):
    """Its transaction is open: whoever asks for a feature waits for it."""
    first, second = pair
    with first.transaction():
        begin_run(first, "old", format=1)
        asked = in_thread(lambda: second.require(FORMAT))
        wait_until(somebody_waits, 60, "the wish waits for the run")
    wait_until(lambda: asked, 60, "the end of the call")
    assert isinstance(asked[0], FeatureHeldBack), asked
    assert second.formats().least == 1


def test_a_run_of_old_that_has_just_begun_is_seen(pair, of_old):
    """Code from before formats knows nothing of the lock: the table takes it."""
    _, second = pair
    asked = []

    def meanwhile():
        asked.append(in_thread(lambda: second.require(FORMAT)))
        wait_until(somebody_waits, 60, "the wish waits for the run")

    assert of_old(meanwhile) is None
    wait_until(lambda: asked[0], 60, "the end of the call")
    assert isinstance(asked[0][0], FeatureHeldBack), asked


def test_a_run_that_begins_while_a_feature_comes_into_use_is_refused(pair):
    """It waits for that transaction, and reads what it has written."""
    first, second = pair
    with first.transaction():
        first.require(FORMAT)
        begun = in_thread(lambda: begin_run(second, "old", format=1))
        wait_until(somebody_waits, 60, "the run waits")
    wait_until(lambda: begun, 60, "the end of the call")
    assert isinstance(begun[0], StoreRefused), begun
    assert second.open_runs() == []


def test_a_run_of_old_is_refused_by_the_table_itself(pair, of_old):
    """It has opened the store before, and enters its run without asking."""
    first, second = pair
    with first.transaction():
        first.require(FORMAT)
        begun = in_thread(of_old)
        wait_until(somebody_waits, 60, "the run waits")
    wait_until(lambda: begun, 60, "the end of the call")
    assert isinstance(begun[0], psycopg.errors.RaiseException), begun
    assert "upgrade jobpool" in str(begun[0])
    assert second.open_runs() == []


def test_what_was_undone_stands_in_nobodys_way(pair, of_old):
    """The run that waited begins."""
    first, second = pair
    with suppress(ZeroDivisionError), first.transaction():
        first.require(FORMAT)
        begun = in_thread(of_old)
        wait_until(somebody_waits, 60, "the run waits")
        raise ZeroDivisionError
    wait_until(lambda: begun, 60, "the end of the call")
    assert [run.format for run in second.open_runs()] == [1]


def test_a_lapsed_run_that_renews_at_that_moment_counts(pair, clock):
    """Its row is held by its own transaction: it has come back."""
    first, second = pair
    begin_run(first, "old", format=1, ttl_s=TTL_S)
    clock.advance(TTL_S + GONE_S + 1)
    with first.transaction():
        first.renew("old", TTL_S, anew=True)
        with pytest.raises(FeatureHeldBack):
            second.require(FORMAT)


@pytest.mark.parametrize("knows", [True, False])
def test_a_lapsed_run_that_comes_back_a_moment_later_is_told(
    pair, store_url, clock, knows
):
    """It is granted nothing, and finds itself outdated; one of old, that it ended."""
    first, second = pair
    begin_run(first, "old", format=1, ttl_s=TTL_S)
    if not knows:
        with server().connect(store_url) as connection:
            schema = sql.Identifier(query_of(store_url)["schema"])
            forget = sql.SQL("UPDATE {}.runs SET format = NULL")
            connection.execute(forget.format(schema))
    second.enqueue([new_job()])
    clock.advance(TTL_S + GONE_S + 1)
    with first.transaction():
        first.require(FORMAT)
        told = in_thread(lambda: second.renew("old", TTL_S, anew=True))
        wait_until(somebody_waits, 60, "the renewal waits")
    wait_until(lambda: told, 60, "the end of the call")
    if knows:
        # It waited for the row of its run, and read the format as it was before.
        assert told == [Renewal.LAPSED]
        assert second.lease("old", {"cpu": 1}, KINDS).outdated
        assert second.renew("old", TTL_S) is Renewal.OUTDATED
    else:
        assert told == [Renewal.ENDED]
        with pytest.raises(StoreRefused, match="has ended"):
            second.lease("old", {"cpu": 1}, KINDS)


def test_features_and_runs_do_not_meet_in_a_circle(store_factory):
    """Everybody takes the formats first: nobody is shot as a deadlock's victim."""
    stores = [store_factory() for _ in range(3)]
    failures = []

    def come_and_go(store, number):
        try:
            for turn in range(12):
                run_id = begin_run(store, f"run-{number}-{turn}")
                lease(store, run_id)
                store.end_run(run_id)
                store.require(FORMAT)
                store.grant_format()
        except Exception as error:  # noqa: BLE001 - any error fails the test below
            failures.append(error)

    threads = [
        threading.Thread(target=come_and_go, args=(store, number))
        for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert stores[0].formats().least == FORMAT


def test_what_a_callers_transaction_waits_for_is_asked_beside_it(pair, store_url):
    """So the wish outlives the transaction, and the refusal names the older runs."""
    store, _ = pair
    begin_run(store, "old", format=1, pid=17)
    job = new_job(payload=b'"encoded:AAEC/w=="', codec="fernet")
    with server().connect(store_url) as connection:
        with pytest.raises(FeatureHeldBack, match="pid 17:"):
            store.enqueue([job], connection)
        connection.rollback()
    assert [run.id for run in store.formats().held_back_by] == ["old"]
