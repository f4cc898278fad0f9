"""What `jobpool dev` says of limits: once each, when a supervisor would act."""

from types import SimpleNamespace

import pytest

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.limits import Effective
from jobpool.core.rules.policy import Policy
from jobpool.supervisor.dev.limits import LimitWatch
from jobpool.supervisor.machine.state.slot import Assigned
from jobpool.testing import FakeClock

MIB = 2**20


@pytest.fixture
def rig():
    """A watch over one attempt, whose time and memory the test decides."""
    clock, said = FakeClock(), []
    watch = LimitWatch(lambda event: said.append(event.text), clock)
    rss = SimpleNamespace(rss=10 * MIB)
    watch._process = SimpleNamespace(memory_info=lambda: rss)
    lease = Lease(
        id=7, token=70, kind="mail", pool="io", payload=b"{}", attempt=1, max_attempts=5
    )
    limits = Effective(timeout_s=10.0, memory_bytes=64 * MIB, heartbeat_timeout_s=4.0)
    job = Assigned(lease, Policy(), limits, 0.0)
    channel = SimpleNamespace(beat_s=0.0, flushes=0)
    channel.flush = lambda: setattr(channel, "flushes", channel.flushes + 1)
    watch.begin(job, channel)
    return SimpleNamespace(
        watch=watch, clock=clock, said=said, rss=rss, channel=channel
    )


def test_an_attempt_within_its_limits_is_not_spoken_of(rig):
    rig.clock.advance(4)
    rig.watch.look()
    assert rig.said == []
    assert rig.channel.flushes == 1


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (lambda rig: setattr(rig.channel, "beat_s", 99), "past its time limit of 10s"),
        (lambda rig: None, "no heartbeat for 4s: it would be killed as stalled"),
        (lambda rig: setattr(rig.rss, "rss", 65 * MIB), "over its memory limit"),
        (lambda rig: setattr(rig.watch, "canceled", frozenset({70})), "was canceled"),
        (lambda rig: setattr(rig.watch, "ending", "SIGINT"), "the end (SIGINT)"),
    ],
)
def test_what_a_supervisor_would_act_on_is_said_once(rig, happens, words):
    happens(rig)
    rig.clock.advance(11)
    for _ in range(3):
        rig.watch.look()
    assert len([text for text in rig.said if words in text]) == 1
    assert all(text.startswith("job 7 (mail) ") for text in rig.said)


def test_a_heartbeat_is_a_sign_of_life(rig):
    rig.clock.advance(4)
    rig.channel.beat_s = rig.clock.monotonic_s()
    rig.clock.advance(3)
    rig.watch.look()
    assert rig.said == []


def test_an_attempt_that_has_ended_is_not_spoken_of(rig):
    rig.watch.end()
    rig.clock.advance(100)
    rig.watch.look()
    assert rig.said == []


def test_an_attempt_that_ended_too_late_is_spoken_of_though_nobody_has_looked(rig):
    """Once, whoever looks next: the machine may have stood still all the while."""
    rig.channel.beat_s = 99
    rig.clock.advance(11)
    rig.watch.end()
    rig.watch.look()
    (text,) = rig.said
    assert "past its time limit of 10s" in text
