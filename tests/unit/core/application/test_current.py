"""What a process knows about the attempt that it runs."""

import datetime as dt

import pytest

from jobpool.core.application import current
from jobpool.core.jobs.job import Scheduled
from jobpool.errors import ConfigError, UsageError
from jobpool.testing import running


def test_only_a_child_can_be_reset(monkeypatch):
    """The child sets how; its answer is passed on."""
    monkeypatch.setattr(current._State, "restorer", None)
    with pytest.raises(UsageError, match="only one of jobpool's children"):
        current.restore()
    current.set_restorer(lambda: (b"state", True))
    assert current.restore() == (b"state", True)


def test_completion_needs_a_client(monkeypatch):
    """The client provides it once it is created."""
    monkeypatch.setattr(current._State, "completer", None)
    with pytest.raises(UsageError, match=r"needs a jobpool\.JobPool"):
        current.completer()
    client = object()
    current.set_completer(client)
    assert current.completer() is client


def test_the_current_attempt_is_the_one_that_was_entered(monkeypatch):
    """And nothing outside of it."""
    monkeypatch.setattr(current._State, "channel", None)
    monkeypatch.setattr(current._State, "current", None)
    with pytest.raises(UsageError, match="no attempt is running"):
        current.current()
    channel, attempt = object(), object()
    current.enter(channel, attempt)
    assert (current.channel(), current.current()) == (channel, attempt)
    current.enter(None, None)
    assert current.channel() is None


def attempt_of(tick):
    """Return the attempt of a job that a schedule has made."""
    limits = current.AttemptLimits(1.0, 1, 1, 0)
    return current.Current(
        job_id=1,
        kind="test",
        attempt=1,
        token=1,
        deadline_monotonic_s=1.0,
        checkpoint=None,
        channel=object(),
        limits=limits,
        scheduled=tick,
    )


def test_a_handler_is_told_its_tick_in_the_schedules_zone():
    """At a change of the clocks both of the two 02:30 have their own offset."""
    tick = Scheduled("nightly", 1_792_891_800_000, "Europe/Berlin", 1500, True)
    said = attempt_of(tick).schedule
    assert said.at.isoformat() == "2026-10-25T02:30:00+01:00"
    assert (said.name, said.late, said.backfilled) == (
        *("nightly", dt.timedelta(seconds=1.5), True),
    )
    with pytest.raises(ConfigError, match="'Europe/Berln' is unknown here"):
        _ = attempt_of(Scheduled("nightly", 0, "Europe/Berln", 0)).schedule
    with running():
        assert current.current().schedule is None
    with running(schedule=said):
        assert current.current().schedule is said
