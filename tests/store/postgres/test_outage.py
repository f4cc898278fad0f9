"""PostgreSQL goes away: every call reports truly, and in time, whether it happened.

Servers restart, connections are cut at any byte, networks swallow what they are given.
After each of these the same store object works again by itself.
"""

import errno
import os
import time

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.admission import Admission
from jobpool.errors import OutcomeUnknown, StoreError, StoreUnavailable
from jobpool.store.opening import open_store
from jobpool.store.postgres.connection import connect, database
from jobpool.store.postgres.store import PostgresStore
from jobpool.store.records.operating import Filter
from jobpool.store.records.runs import Renewal
from support.postgres.cutting_proxy import DOWN, UP, CuttingProxy
from support.postgres.server import server
from support.store.storing import begin_run, lease, lease_one, new_job, succeeded
from support.waiting import Running, wait_until

PATIENCE_S = 1.0
"""Where nothing answers: so long is waited, and in vain."""
BUSY_S = 20.0
"""Everywhere else: a machine that is busy for seconds is no outage."""
BACK_S = 60


@pytest.fixture
def own_server():
    """The session's server, if it is ours to stop."""
    if not server().is_ours:
        pytest.skip("JOBPOOL_TEST_POSTGRES is somebody's: not ours to stop")
    yield server()
    server().start()


@pytest.fixture
def proxy(own_server):
    with CuttingProxy(own_server.port) as proxy:
        yield proxy


@pytest.fixture
def open_through(proxy):
    """Open stores whose connection goes through the proxy, with the server's clock."""
    url = server().store_url(server().tcp_url)
    # Not made through the proxy: a connection that has committed often sends a COMMIT
    # by the name under which it has prepared it, and the proxy knows it by its text.
    opened = []

    def make():
        store = PostgresStore(
            proxy.url(url),
            clock=None,
            create=True,
            admission=Admission(depth_max=1000),
            patience_s=BUSY_S,
        )
        opened.append(store)
        return store

    yield make
    proxy.heal()
    for store in opened:
        store.close()
    server().drop(url)


@pytest.fixture
def far(open_through):
    """A store behind the proxy, with one supervisor's run in it."""
    store = open_through()
    begin_run(store)
    return store


def lose_patience(store):
    """Wait for answers on the connection that there is no longer than `PATIENCE_S`."""
    store._server._session.connection.patience_s = PATIENCE_S


def comes_back(store):
    """Wait until the store works again, and return how many jobs it holds."""

    def count():
        try:
            return (store.count(Filter()),)
        except StoreUnavailable:
            return None

    return wait_until(count, BACK_S, "the store works again")[0]


def enqueue_around(store, event, *, afterwards=True):
    """Store two jobs, or one, in one transaction, while something happens."""
    with store.transaction():
        store.enqueue([new_job()])
        event()
        if afterwards:
            store.enqueue([new_job()])


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_a_restart_between_calls_costs_at_most_one(own_server, far, mode):
    """Stored jobs are there; leases hold; the next calls connect again."""
    far.enqueue([new_job(), new_job()])
    granted = lease_one(far)
    if mode == "kill":
        own_server.kill()
        own_server.start()
    else:
        own_server.restart(mode)
    assert comes_back(far) == 2
    assert far.renew("run-1", 60) is Renewal.HELD
    assert all(far.settle([succeeded(granted)]))
    assert far.get(granted.id).state is JobState.SUCCEEDED


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_inside_a_transaction_undoes_all_of_it(own_server, far, mode):
    """Nothing is half done, and nothing is done on another connection instead."""
    with pytest.raises(StoreUnavailable):
        enqueue_around(far, lambda: own_server.restart(mode))
    assert comes_back(far) == 0


def test_a_stopped_server_is_reported_at_once(own_server, far):
    """Trying again is right, and works once the server is back."""
    own_server.stop()
    took_s = []
    for _ in range(3):
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailable):
            far.enqueue([new_job()])
        took_s.append(time.monotonic() - began_s)
    assert min(took_s) * len(took_s) < 5  # one of them may meet a busy machine
    own_server.start()
    assert comes_back(far) == 0
    assert far.enqueue([new_job()])[0].created


@pytest.mark.parametrize("delivered", [True, False])
def test_the_outcome_of_an_unanswered_commit_is_looked_up(proxy, far, delivered):
    """Committed: the call returns. Not committed: it says that nothing happened."""
    proxy.cut_at(b"COMMIT", delivered=delivered)
    if delivered:
        assert far.enqueue([new_job()])[0].created
    else:
        with pytest.raises(StoreUnavailable):
            far.enqueue([new_job()])
    assert (proxy.cuts, proxy.is_armed) == (1, False)
    assert comes_back(far) == int(delivered)


@pytest.mark.parametrize("delivered", [True, False])
def test_a_settlement_without_an_answer_is_written_once(proxy, far, delivered):
    """After an error that says it did not happen, settling again is not STALE."""
    far.enqueue([new_job()])
    granted = lease_one(far)
    proxy.cut_at(b"COMMIT", delivered=delivered)
    try:
        receipts = far.settle([succeeded(granted)])
    except StoreUnavailable:
        assert not delivered
        comes_back(far)
        receipts = far.settle([succeeded(granted)])
    assert all(receipts)
    assert far.get(granted.id).state is JobState.SUCCEEDED
    assert far.describe()["stale_settlements"] == "0"


def test_an_outcome_that_cannot_be_found_out_is_unknown(proxy, far, monkeypatch):
    """The server stays away after the cut.

    Neither success nor failure would be true.
    """
    monkeypatch.setattr(database, "DOUBT_S", 0.5)
    proxy.cut_at(b"COMMIT", delivered=True)
    with pytest.raises(OutcomeUnknown):
        enqueue_around(far, proxy.accept_no_more, afterwards=False)
    proxy.heal()
    assert comes_back(far) == 1


@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("count", [1, 60, 250, 600, 1000, 1500, 2500])
def test_a_cut_at_any_byte_leaves_all_or_nothing(proxy, far, direction, count):
    """A job is there if the call returned, and is not if it raised."""
    proxy.cut_after(count, direction)
    stored = 0
    for _ in range(20):
        try:
            stored += len(far.enqueue([new_job(), new_job()]))
        except StoreUnavailable:
            continue
    assert not proxy.is_armed
    assert comes_back(far) == stored
    assert stored >= 2 * 18


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.enqueue([new_job()]),
        lambda store: store.lease("run-1", {"cpu": 1}, {"cpu": ["a"]}),
        lambda store: store.renew("run-1", 60),
        lambda store: store.count(Filter()),
    ],
    ids=["enqueue", "lease", "renew", "count"],
)
def test_a_black_hole_ends_in_bounded_time(proxy, far, call):
    """A network that swallows everything costs the patience, not the lease."""
    lose_patience(far)
    proxy.black_hole()
    with Running() as running, pytest.raises(StoreUnavailable):
        call(far)
    assert running.ran_s() < PATIENCE_S + 4
    proxy.heal()
    assert comes_back(far) == 0


def test_a_commit_lost_in_a_black_hole_is_never_called_a_failure(proxy, far):
    """The server received it: once it can be asked, the store says so."""
    with far.transaction():
        far.enqueue([new_job()])
        proxy.swallow_answer_to(b"COMMIT")
        lose_patience(far)
    assert comes_back(far) == 1


def test_slow_networks_are_only_slow(proxy, far):
    """Delays shorter than the patience cause no error."""
    proxy.delay(0.05)
    far.enqueue([new_job()])
    assert len(lease(far)) == 1


def test_running_out_of_descriptors_is_an_outage_like_others(proxy, far, monkeypatch):
    """The machine's refusal, which psycopg passes on as OSError, ends no thread."""

    def refuse(*_args, **_options):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(connect.BoundedConnection, "connect", refuse)
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            far.count(Filter())
        with pytest.raises(StoreUnavailable, match="Too many open files"):
            far.count(Filter())
    assert far.count(Filter()) == 0


def test_a_terminated_backend_is_replaced(far):
    """An administrator ends our session: the next call has another."""
    with server().connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'jobpool'"
        )
    assert comes_back(far) == 0


def test_a_server_that_became_read_only_is_left(own_server, far):
    """As after a failover: the store looks for the primary again."""
    with server().connect() as connection:
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        try:
            wait_until(is_read_only, BACK_S, "the server has read its configuration")
            with pytest.raises(StoreUnavailable, match="primary"):
                far.enqueue([new_job()])
            with pytest.raises(StoreError, match="primary"):
                open_store(server().fresh_url())
        finally:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")
    wait_until(lambda: not is_read_only(), BACK_S, "the server has read it again")
    assert far.enqueue([new_job()])[0].created


def is_read_only():
    with server().connect() as connection:
        found = connection.execute("SHOW default_transaction_read_only").fetchone()
    return found == ("on",)
