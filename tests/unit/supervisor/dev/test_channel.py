"""What handlers in a supervisor's own process ask: by the rules that children have."""

import pytest

from jobpool import ArgumentsRejected, JobPool, UsageError, current
from jobpool.core.application.current import channel
from jobpool.testing import Queue


@pytest.fixture
def jobs():
    return JobPool()


@pytest.fixture
def queue(jobs):
    with Queue() as queue:
        queue.serve(jobs)
        yield queue


def outcome_of(queue):
    """Return what the one handler that runs has raised."""
    (ran,) = queue.run_due()
    return ran.error


def test_permits_that_each_host_counts_alone_are_not_asked_of_the_store(jobs, queue):
    """A second one waits for the first; here nobody could return it."""
    local = jobs.quota("local", concurrency=2, scope="host")

    @jobs.job("io", kind="takes")
    def takes():
        way, seen = channel(), []
        for cost in (1, 1, 1, 3):
            n = way.ask_permit("local", "", cost, None)
            seen.append(way.permit_answer(n, 0))
        way.return_permit(1)
        seen.append(way.permit_answer(way.ask_permit("local", "", 1, None), 0))
        return [(one.granted, bool(one.refused)) for one in seen]

    assert local.name == "local"
    job = takes.enqueue()
    queue.run_due()
    assert job.result() == [
        *([True, False], [True, False], [False, False], [False, True], [True, False])
    ]


def test_a_breaker_hears_of_requests(jobs, queue):
    vendor = jobs.quota(
        "vendor",
        concurrency=5,
        breaker={"failures": 0.5, "requests": 2, "window": "1m"},
    )

    @jobs.job("io", kind="calls")
    def calls():
        for _ in range(4):
            with vendor.permit() as permit:
                permit.failed()

    calls.enqueue()
    calls.options(run_in="1s").enqueue()
    queue.run_due()
    (ran,) = queue.advance("2s")
    assert ran.outcome is None  # it snoozed: the breaker has opened


def test_progress_is_written_with_the_end_and_must_be_small(jobs, queue):
    @jobs.job("io", kind="reports")
    def reports():
        current().heartbeat(progress=1, checkpoint={"at": 1})
        current().heartbeat(progress="2")
        with pytest.raises(ArgumentsRejected, match="at most 4096 are kept"):
            current().heartbeat(progress="x" * 5000)
        raise ValueError

    job = reports.enqueue()
    queue.run_due()
    assert job.progress == "2"


def test_a_thread_that_outlives_its_attempt_is_refused(jobs, queue):
    kept = []

    @jobs.job("io", kind="leaves")
    def leaves():
        kept.append(channel())

    leaves.enqueue()
    queue.run_due()
    for asks in (
        lambda way: way.enqueue([]),
        lambda way: way.read(1),
        lambda way: way.beat(1, None),
        lambda way: way.ask_permit("x", "", 1, None),
        lambda way: way.add_members([]),
        lambda way: way.block_bucket("x", "", 1.0),
        lambda way: way.complete(None, None),
    ):
        with pytest.raises(UsageError, match="has ended"):
            asks(kept[0])


def test_it_is_completed_once_and_not_with_what_was_added(jobs, queue):
    @jobs.job("io", kind="twice")
    def twice():
        current().complete(None, 1)
        current().complete(None, 2)

    @jobs.job("io", kind="adds")
    def adds():
        current().flow.add(twice.call())
        current().complete(None, 1)

    twice.enqueue()
    assert "called before in this attempt" in str(outcome_of(queue))
    flow = jobs.flow("adding")
    flow.add(adds.call())
    flow.enqueue()
    assert "does not go with current().flow" in str(outcome_of(queue))
