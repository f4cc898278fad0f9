"""Steps of schedules on PostgreSQL wait for nobody, and skip what others hold."""

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.policy import Overlap
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.store.records.schedules import Published
from support.postgres.patient_locks import patient_locks
from support.postgres.server import query_of, server
from support.store.scheduling import declared, fail_one, put, states
from support.store.storing import begin_run, lease_one, new_job, succeeded
from support.waiting import in_thread, wait_until


@pytest.fixture(scope="module", autouse=True)
def _locks_are_waited_for():
    with patient_locks():
        yield


@pytest.fixture
def held(store, store_url):
    """Hold a job, as a handler's own transaction does."""
    connections = []

    def hold(job_id):
        connection = server().connect(store_url)
        connection.autocommit = False
        schema = query_of(store_url)["schema"]
        text = f"SELECT id FROM {schema}.jobs WHERE id = {job_id} FOR UPDATE"  # noqa: S608 - our own
        assert connection.execute(text).fetchone() == (job_id,)
        connections.append(connection)
        return connection

    yield hold
    for connection in connections:
        connection.close()


def test_a_step_skips_what_another_one_handles(store, store_factory, clock):
    """And does not ask at once again; if that is cut short, it makes the step."""
    other = store_factory()
    put(store, "a", "b", "c")
    clock.advance(60)

    def die():
        with store.transaction():
            assert store.tick(2).enqueued == 2
            first, second = other.tick(), other.tick()
            assert (first.enqueued, second.enqueued) == (1, 0)
            assert second.next_due_in_s == 1.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        die()
    assert other.tick().enqueued == 2


def test_a_retry_that_somebody_holds_is_not_replaced(store, clock, held):
    """It may be about to run; whoever holds it does not keep the step waiting."""
    put(store)
    clock.advance(60)
    store.tick()
    failed = fail_one(store, clock)
    held(failed.id)
    clock.advance(60)
    assert store.tick().canceled == 0
    assert states(store)[-1] is TickState.SKIPPED
    assert store.get(failed.id).state is JobState.PENDING


def test_a_job_that_somebody_holds_is_canceled_at_a_later_step(store, clock, held):
    """Under `cancel_other`, as soon as it can be."""
    put(store, overlap=Overlap.CANCEL_OTHER)
    clock.advance(60)
    store.tick()
    granted = lease_one(store)
    holder = held(granted.id)
    clock.advance(60)
    stepped = store.tick()
    assert (stepped.canceled, stepped.buffered) == (0, 1)
    assert stepped.next_due_in_s == 1.0
    clock.advance(1)
    assert store.tick().canceled == 0
    holder.rollback()
    clock.advance(1)
    assert store.tick().canceled == 1
    assert store.cancel_requests("run-1") == [granted.token]
    assert store.tick().next_due_in_s == 1.0


def test_a_producer_and_a_step_do_not_wait_for_each_other(store, store_factory, clock):
    """Nor do lease and settle, while the step is not yet committed."""
    other = store_factory()
    begin_run(other, "run-2")
    put(store)
    clock.advance(60)
    with store.transaction():
        assert store.tick().enqueued == 1
        other.enqueue([new_job()])
        other.settle([succeeded(lease_one(other, "run-2"))])


def test_two_that_publish_the_same_for_the_first_time_agree(
    store, store_factory, clock
):
    """The second one waits for the first one's commit, and finds all of it there."""
    other = store_factory()
    for one, run_id in ((store, "a"), (other, "b")):
        begin_run(one, run_id, application="shop", app_version="v1")
    wanted = [declared("m"), declared("n")]
    with store.transaction():
        assert store.publish_schedules("a", wanted).added == ("m", "n")
        second = in_thread(lambda: other.publish_schedules("b", wanted[::-1]))
    wait_until(lambda: second, 60, "the second answer")
    assert second == [Published()]
