"""jobpool.testing: what an application's own tests rely on."""

import datetime as dt

import pytest

import jobpool
from jobpool import ArgumentsRejected, JobPool, UsageError
from jobpool.testing import FakeClock, run_now, running

jobs = JobPool()


@jobs.job("cpu", kind="later")
def later(when: dt.datetime, days: int = 1) -> dt.datetime:
    return when + dt.timedelta(days=days)


@jobs.job("io", kind="slow")
async def slow(name: str):
    return {"name": name, "pair": (1, 2)}


def test_run_now_goes_through_json_both_ways():
    """Values that JSON changes are changed here as well; annotations restore them."""
    moment = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    assert run_now(later, moment, days=2) == moment + dt.timedelta(days=2)
    assert run_now(slow, "a") == {"name": "a", "pair": [1, 2]}


def test_run_now_refuses_what_enqueue_refuses():
    """A test finds the mistake before production does."""
    with pytest.raises(ArgumentsRejected, match="argument 'when'"):
        run_now(later, "SECRET")
    with pytest.raises(UsageError, match="expected a handler"):
        run_now(print)


def test_running_gives_a_handler_its_attempt():
    """Heartbeats are collected, and a drain can be simulated."""
    with running(kind="k", job_id=5, attempt=2, token=9, checkpoint=[1]) as seen:
        current = jobpool.current()
        assert (current.id, current.kind, current.attempt) == (5, "k", 2)
        assert (current.token, current.checkpoint) == (9, [1])
        current.heartbeat(progress=0.5)
        current.heartbeat(checkpoint={"page": 3})
        assert not current.stopping
        seen.stop()
        assert current.stopping
    assert seen.beats == [(0.5, None), (None, {"page": 3})]
    with pytest.raises(UsageError):
        jobpool.current()


def test_a_heartbeat_that_is_not_json_is_refused():
    """As in a child."""
    with running() as seen, pytest.raises(ArgumentsRejected, match="heartbeat"):
        jobpool.current().heartbeat(progress=object())
    assert seen.beats == []


def test_running_gives_a_handler_results_of_the_steps_before_it():
    """By handler as it has returned them, or all of them with their jobs, as JSON."""
    moment = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    before = [(later, moment), (slow, {"a": 1}), (later, moment.replace(year=2027))]
    with running(results=before):
        current = jobpool.current()
        moments = current.results(later)
        assert list(moments) == list(moments) == [moment, moment.replace(year=2027)]
        assert list(current.results(slow)) == [{"a": 1}]
        assert [(job.kind, value) for job, value in current.results()] == [
            ("later", "2026-01-02T00:00:00Z"),
            ("slow", {"a": 1}),
            ("later", "2027-01-02T00:00:00Z"),
        ]
    with running():
        assert list(jobpool.current().results()) == []
    with (
        pytest.raises(TypeError, match="the result of slow"),
        running(results=[(slow, object())]),
    ):
        """It is refused as a child would refuse it."""


def test_running_collects_what_a_handler_adds_to_its_flow():
    """With its own tenant and priority, if the options do not say."""
    with running(tenant="acme", priority=4) as seen:
        flow = jobpool.current().flow
        flow.add(slow.call("1"))
        assert flow.add_many(slow.options(tenant="b").call(n) for n in "23") == 2
        flow.add(slow.options(priority=0).call("4"))
    found = [(job.tenant, job.priority) for job in seen.added]
    assert found == [("acme", 4), ("b", 4), ("b", 4), ("acme", 0)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"key": "k"}, "key= and unique="),
        ({"unique": "u"}, "key= and unique="),
        ({"run_at": dt.datetime(2100, 1, 1, tzinfo=dt.UTC)}, "run_at="),
    ],
)
def test_what_does_not_go_with_flows_is_not_added(options, problem):
    with running() as seen:
        flow = jobpool.current().flow
        calls = [slow.call("1"), slow.options(**options).call("2")]
        with pytest.raises(UsageError, match=problem):
            flow.add_many(calls)
        with pytest.raises(UsageError, match="expected a call"):
            flow.add(slow)
        with pytest.raises(UsageError, match="expected a list or generator"):
            flow.add_many(calls[0])
    assert seen.added == []


def test_running_blocks_nest():
    """The outer attempt is current again afterwards."""
    with running(job_id=1):
        with running(job_id=2):
            assert jobpool.current().id == 2
        assert jobpool.current().id == 1


def test_a_fake_clock_moves_only_on_request():
    """Both clocks advance together; only the wall clock jumps."""
    clock = FakeClock(1000)
    clock.advance("1.5s")
    clock.jump(-2)
    assert (clock.utc_ms(), clock.monotonic_s()) == (500, 1.5)
