"""complete(): what the child reports, and what the log says about it."""

import sqlite3

import pytest

import jobpool
from jobpool import JobPool, Superseded, UsageError
from jobpool.core.application.current import Claim
from jobpool.core.events.jobs import JobEnded, JobSucceeded
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.sandbox.protocol.verdict import NOT_COMMITTED
from jobpool.store import handler_transactions
from jobpool.store.opening import open_store
from jobpool.supervisor.machine import inputs as inp
from jobpool.testing import running
from support.machine.world import World
from support.store.storing import begin_run, lease_one, new_job


def ended(world):
    """Return what was reported about attempts' ends."""
    return [e for e in world.said if isinstance(e, JobSucceeded | JobEnded)]


def claimed(**fields):
    """Return a world whose child has reported that it completed its job itself."""
    world = World().up()
    world.hold_settled = True
    job = world.job()
    world.notify()
    world.done(0, completed=True, **fields)
    return world, job


def test_a_claimed_completion_is_settled_as_a_failure_the_store_may_skip():
    """Only the store knows whether the handler's transaction was committed."""
    world, _ = claimed()
    (settlement,) = world.settled
    assert settlement.completed
    assert settlement.outcome is Outcome.FAILED
    assert settlement.state is JobState.PENDING
    assert settlement.evidence.reason == NOT_COMMITTED
    assert ended(world) == []


def test_a_completion_is_logged_once_the_store_confirms_it():
    """Not before the store has confirmed it, and only once."""
    world, job = claimed()
    world.step(inp.Settled(1, completed=(job.token,)))
    world.step(inp.Settled(0, completed=(job.token,)))
    assert [(type(e), e.id) for e in ended(world)] == [(JobSucceeded, job.id)]


def test_a_completion_that_was_not_committed_is_logged_as_a_failure():
    """With the reason, and when it is tried again."""
    world, job = claimed()
    world.step(inp.Settled(1, unfinished=(job.token,)))
    (event,) = ended(world)
    assert (event.outcome, event.reason) == (Outcome.FAILED, NOT_COMMITTED)


def test_a_superseded_end_is_reported_only_by_the_store():
    """Nothing is logged about an attempt that another one has replaced."""
    world, job = claimed()
    world.step(inp.Settled(1, stale=(job.token,)))
    assert ended(world) == []


def test_running_in_a_test_records_the_completion():
    """A handler's own test sees what it completed with, and that it does so once."""
    with running() as seen:
        jobpool.current().complete("a connection", {"sold": 1})
        assert seen.completion == ("a connection", {"sold": 1})
        with pytest.raises(UsageError, match="before in this attempt"):
            jobpool.current().complete("a connection")
    with running() as seen:
        with pytest.raises(TypeError, match="the result of test cannot be stored"):
            jobpool.current().complete("a connection", object())
        seen.supersede()
        with pytest.raises(Superseded):
            jobpool.current().complete("a connection")
        assert seen.completion is None


@pytest.fixture
def leased(tmp_path):
    """A leased job's claim, and the path of its store."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = open_store(url)
    begin_run(store)
    store.enqueue([new_job()])
    lease = lease_one(store)
    claim = Claim(url, lease.id, lease.kind, lease.token, 1000, 1000, 1000)
    yield claim, tmp_path / "jobs.db"
    store.close()


@pytest.mark.parametrize("isolation_level", ["", "IMMEDIATE"])
def test_on_sqlite_the_drivers_own_transaction_is_enough(leased, isolation_level):
    """A connection that begins transactions implicitly needs no explicit BEGIN.

    Nothing is left before its commit.
    """
    claim, path = leased
    connection = sqlite3.connect(path, isolation_level=isolation_level)
    handler_transactions.complete(connection, claim, b'"x"')
    assert connection.in_transaction
    connection.rollback()
    handler_transactions.complete(connection, claim, b'"x"')
    connection.commit()
    connection.close()
    jobs = JobPool(claim.store_url)
    assert jobs.get(claim.job_id).result(timeout=0) == "x"
    jobs.close()


def test_complete_without_a_transaction_is_refused(leased):
    """It could not be undone together with what the handler wrote."""
    claim, path = leased
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(UsageError, match="no transaction is open"):
        handler_transactions.complete(connection, claim, b"null")
    connection.close()


def test_a_connection_to_another_file_is_refused(leased, tmp_path):
    """A job can only be completed in its own file."""
    claim, _ = leased
    for place in (":memory:", tmp_path / "other.db"):
        connection = sqlite3.connect(place)
        with pytest.raises(UsageError, match="the connection is to"):
            handler_transactions.complete(connection, claim, b"null")
        connection.close()
    with pytest.raises(UsageError, match="cannot be used here"):
        handler_transactions.complete(connection, claim, b"null")
    with pytest.raises(UsageError, match=r"expected a sqlite3\.Connection"):
        handler_transactions.complete(object(), claim, b"null")


def test_a_superseded_token_undoes_the_transaction(leased):
    """Whatever the handler does with the error: its writes are gone."""
    claim, path = leased
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sales (job)")
    connection.commit()
    connection.execute("INSERT INTO sales VALUES (1)")
    with pytest.raises(Superseded, match="was taken back"):
        handler_transactions.complete(connection, claim._replace(token=1), b"null")
    connection.commit()
    assert connection.execute("SELECT count(*) FROM sales").fetchone() == (0,)
    connection.close()
