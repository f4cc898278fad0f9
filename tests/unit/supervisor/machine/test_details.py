"""What is reported of failures and ticks to those who ask for more than the log has."""

import pytest

from jobpool.core.application.reports import Item, Report
from jobpool.core.events.figures import (
    AttemptUnsuccessful,
    ReportsLeft,
    TickBegun,
    TickEnded,
)
from jobpool.core.events.jobs import JobEnded
from jobpool.core.jobs.job import JobState, Scheduled
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.policy import Policy
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.sandbox.protocol.messages import Raised
from support.machine.world import World, pool

CAUSE = f"00-{'a' * 32}-{'b' * 16}-01"
ERROR = Raised(["shop.Refused"], "no card", 'File "/srv/jobs.py", line 3, in pay')
HOURLY = Declared(
    name="hourly", kind="cpu.work", pool="cpu", payload=b"{}", rule=Rule(cron="@hourly")
)
OF_ERROR = Report("1", of_error=True, items=[Item({}, b"{}")])
OTHER = Report("2", of_error=False, items=[Item({}, b"{}")])
TICK = Scheduled("hourly", 3_600_000, "UTC", late_ms=0)


def world(**options):
    return World(
        pool(size=1), details=True, schedules=(HOURLY,), policy=Policy(), **options
    ).up()


def said(world, *kinds):
    return [event for event in world.said if type(event) in kinds]


def test_a_failure_is_reported_with_all_that_is_known_of_its_end():
    """And with what the log has of it, in its trace, but without its output."""
    at = world()
    at.job(trace=CAUSE)
    at.notify()
    at.done(0, error=ERROR, output=b"secret")
    (found,), (ended,) = said(at, AttemptUnsuccessful), said(at, JobEnded)
    assert found.ended == ended
    assert (found.evidence.error, found.evidence.output) == ("no card", None)
    assert found.evidence.traceback == ERROR.traceback
    assert (found.pool, found.cause, found.app_version) == ("cpu", CAUSE, "v1")
    assert found.trace.trace_id == "a" * 32


def test_a_death_is_reported_as_well():
    at = world()
    at.job()
    at.notify()
    at.died(0, signal=11)
    (found,) = said(at, AttemptUnsuccessful)
    assert (found.ended.outcome, found.evidence.signal) == (Outcome.CRASHED, 11)


def test_encoded_texts_are_left_out():
    """Only children can read them; what the supervisor itself has seen is there."""
    at = world()
    at.job(codec="fernet")
    at.notify()
    at.done(0, error=Raised(["shop.Refused"], "encoded:QQ==", "encoded:QQ=="))
    (found,) = said(at, AttemptUnsuccessful)
    assert found.evidence.error_class == "shop.Refused"
    assert (found.evidence.error, found.evidence.traceback) == (None, None)


def test_a_success_and_a_snooze_are_no_failures():
    at = world()
    at.job()
    at.job()
    at.notify()
    at.done(0)
    at.done(0, error=Raised(["jobpool.Snooze"], "", "", snooze_s=5.0))
    assert said(at, AttemptUnsuccessful, TickBegun, TickEnded) == []


@pytest.mark.parametrize("output", [b"", b"a line"])
def test_a_tick_begins_and_ends(output):
    """On the fast path, and beside it."""
    at = world()
    lease = at.job(schedule=TICK)
    at.notify()
    (begun,) = said(at, TickBegun)
    at.done(0, duration_s=2.0, output=output)
    (ended,) = said(at, TickEnded)
    assert (begun.id, begun.tick, begun.rule) == (lease.id, TICK, HOURLY.rule)
    assert (ended.id, ended.tick, ended.rule) == (lease.id, TICK, HOURLY.rule)
    assert (ended.state, ended.duration_s) == (JobState.SUCCEEDED, 2.0)


def test_a_tick_goes_on_until_no_retry_is_left():
    """And it begins once."""
    at = world()
    at.job(schedule=TICK, max_attempts=1)
    at.job(schedule=TICK)
    at.job(schedule=TICK, attempt=2)
    at.notify()
    for _ in range(3):
        at.done(0, error=ERROR)
    assert [one.id for one in said(at, TickBegun)] == [1, 2]
    assert [(one.id, one.state) for one in said(at, TickEnded)] == [(1, JobState.DEAD)]


def test_a_schedule_that_was_put_at_run_time_has_no_rule_here():
    at = world()
    at.job(schedule=Scheduled("put", 5, "UTC", late_ms=0))
    at.notify()
    assert [one.rule for one in said(at, TickBegun)] == [None]


def test_what_an_error_tracker_has_left_goes_with_the_attempts_end():
    """Its report of the error only then: whether it is the last is known here."""
    at = world()
    at.job()
    at.job()
    at.notify()
    at.done(0, reports=[OTHER])
    at.done(0, error=ERROR, reports=[OF_ERROR, OTHER])
    assert [one.reports for one in said(at, ReportsLeft)] == [[OTHER], [OTHER]]
    assert [one.report for one in said(at, AttemptUnsuccessful)] == [OF_ERROR]


def test_nothing_is_made_that_nobody_hears():
    at = World(pool(size=1)).up()
    at.job(schedule=TICK, max_attempts=1)
    at.notify()
    at.done(0, error=ERROR)
    assert said(at, AttemptUnsuccessful, TickBegun, TickEnded) == []
