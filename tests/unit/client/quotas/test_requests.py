"""What a breaker is told of requests, by `permit`, `answered` and `failed`."""

from __future__ import annotations

import asyncio
import warnings

import pytest

import jobpool
from jobpool import testing
from jobpool.errors import ConfigError, UsageError
from jobpool.testing import Request

GOOD, BAD = Request("stripe", "", failed=False), Request("stripe", "", failed=True)


@pytest.fixture
def stripe():
    """Return a quota."""
    return jobpool.JobPool().quota("stripe", concurrency=5, breaker={})


@pytest.fixture
def rehearsal():
    """Let a job run."""
    with testing.running() as rehearsal:
        yield rehearsal


def leave(quota, how):
    """Take a permit, and do something in its block."""
    with quota.permit() as permit:
        how(permit)


def raises(error):
    """Return what raises it."""

    def body(_permit):
        raise error

    return body


@pytest.mark.parametrize("status", [200, 404, 429])
def test_an_answer_below_500_is_a_good_request(stripe, rehearsal, status):
    """Whoever refuses us is there."""
    try:
        leave(stripe, lambda permit: permit.answered(status))
    except jobpool.Throttled:
        assert status == 429
    assert rehearsal.requests == [GOOD]


def test_an_answer_from_500_on_has_failed_and_so_has_an_exception(stripe, rehearsal):
    """Once each: what was said is not counted again at the end of the block."""
    leave(stripe, lambda permit: permit.answered(500))
    leave(stripe, lambda permit: permit.failed())
    with pytest.raises(jobpool.Throttled):
        leave(stripe, lambda permit: permit.answered(503, {"Retry-After": "7"}))
    assert rehearsal.requests == [BAD] * 3
    for error in (ConnectionError(), jobpool.SoftTimeout()):
        with pytest.raises(type(error)):
            leave(stripe, raises(error))
    assert rehearsal.requests == [BAD] * 5
    leave(stripe, lambda _permit: None)
    assert rehearsal.requests[5:] == [GOOD]


@pytest.mark.parametrize(
    "error",
    [
        jobpool.Snooze(5),
        jobpool.GiveUp("no"),
        jobpool.RetryLater(5),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
    ],
)
def test_an_exception_that_is_not_the_services_says_nothing(stripe, rehearsal, error):
    """Neither good nor bad."""
    with pytest.raises(type(error)):
        leave(stripe, raises(error))
    assert rehearsal.requests == []


def test_a_block_that_got_no_permit_has_made_no_request(stripe, rehearsal):
    """And says nothing of it."""
    rehearsal.use_up(stripe)
    with pytest.raises(jobpool.Snooze):
        leave(stripe, lambda _permit: None)
    assert rehearsal.requests == []


def test_a_job_that_holds_the_quota_since_its_start_says_so_by_the_quota(rehearsal):
    """It has no block."""
    vendor = jobpool.JobPool().quota("vendor", concurrency=5, per="tenant", breaker={})
    vendor.answered(200, value="acme")
    vendor.failed(value="acme")
    assert rehearsal.requests == [
        Request("vendor", "acme", failed=False),
        Request("vendor", "acme", failed=True),
    ]


def test_a_permit_that_is_never_taken_says_so(stripe, rehearsal):
    """Nobody sees from outside that nothing was counted."""
    with pytest.warns(RuntimeWarning, match="write `with quota.permit"):
        stripe.permit()
    with pytest.raises(UsageError, match="not taken"):
        stripe.permit().failed()  # it says so once
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leave(stripe, lambda _permit: None)
        rehearsal.use_up(stripe)
        with pytest.raises(jobpool.Snooze):
            leave(stripe, lambda _permit: None)


def test_an_option_that_does_not_exist_is_refused_with_what_was_meant():
    """Instead of a bare TypeError."""
    jobs = jobpool.JobPool()
    with pytest.raises(ConfigError, match=r"rate_limit.*jobs\.quota.*Nothing was"):
        jobs.job("io", rate_limit="10/s")
    with pytest.raises(ConfigError, match="did you mean 'timeout'"):
        jobs.job("io", time_out="10s")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"breaker": {"failures": 2}}, "failures=2 is out of range"),
        ({"breaker": {"failures": "half"}}, "expected a number"),
        ({"breaker": {"requests": 1.5}}, "expected a whole number"),
        ({"breaker": {"pause": "1ms"}}, "pause=.* is out of range"),
        ({"breaker": {"after": 3}}, "'after' is unknown; expected failures"),
        ({"breaker": 0.5}, "expected a table"),
        ({"retry_budget": -1}, "out of range"),
        ({"retry_budget": "some"}, "expected a share such as 0.2"),
        ({"retry_budget": {"floor": "1/h"}}, "too low"),
        ({"retry_budget": {"rate": 1}}, "expected a share such as 0.2"),
    ],
)
def test_a_breaker_or_budget_that_cannot_be_kept_is_refused(options, says):
    """When it is declared, by its name."""
    with pytest.raises(ConfigError, match=f"quota 'stripe': {next(iter(options))}.*"):
        jobpool.JobPool().quota("stripe", **options)
    with pytest.raises(ConfigError, match=says):
        jobpool.JobPool().quota("stripe", **options)


def test_breaker_and_budget_are_read_as_they_are_written():
    """What is left out has its default."""
    jobs = jobpool.JobPool()
    quota = jobs.quota(
        "stripe",
        breaker={"failures": 0.3, "window": "2m", "requests": 10, "pause": "5s"},
        retry_budget={"ratio": 0.5, "floor": "10/m"},
    ).definition
    breaker, budget = quota.breaker, quota.retry_budget
    assert (breaker.failures, breaker.window_s) == (0.3, 120.0)
    assert (breaker.requests, breaker.pause_s) == (10, 5.0)
    assert (budget.ratio, str(budget.floor)) == (0.5, "10/m")
    plain = jobs.quota("plain", breaker={}, retry_budget=0.1).definition
    assert (plain.breaker.requests, str(plain.retry_budget.floor)) == (20, "1/s")
