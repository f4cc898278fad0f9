"""The reactor: a callback that another has removed is not called any more."""

import os
import socket

import pytest

from jobpool.core.clock import SystemClock
from jobpool.supervisor.reactor import SOON_S, Reactor


@pytest.fixture
def reactor():
    reactor = Reactor(SystemClock(), observer=None)
    yield reactor
    reactor.close()


def ready_pair():
    """Return the reading end of a socket pair that can be read, and the other."""
    reading, writing = socket.socketpair()
    writing.send(b"x")
    return reading, writing


def test_a_callback_may_remove_another_that_is_ready(reactor):
    """A child that sends and dies at once is ready twice, and is reaped once."""
    pairs = [ready_pair() for _ in range(2)]
    called = []

    def end_both(number):
        def ready(_mask):
            called.append(number)
            for reading, _writing in pairs:
                reactor.unwatch(reading)

        return ready

    for number, (reading, _writing) in enumerate(pairs):
        reactor.watch(reading, end_both(number))
    reactor.wait(0.0)
    assert len(called) == 1
    for pair in pairs:
        for end in pair:
            end.close()


def test_a_reused_descriptor_number_is_not_confused(reactor):
    """A descriptor closed and reopened within one round is a different one."""
    pairs = [ready_pair() for _ in range(2)]
    late, called = [], []

    def replace(number):
        def ready(_mask):
            called.append(number)
            other = pairs[1 - number][0]
            fd = other.fileno()
            for reading, _writing in pairs:
                reactor.unwatch(reading)
            os.dup2(late_pair[0].fileno(), fd)
            reactor.watch(other, lambda _mask: late.append(fd))

        return ready

    late_pair = ready_pair()
    for number, (reading, _writing) in enumerate(pairs):
        reactor.watch(reading, replace(number))
    reactor.wait(0.0)
    assert (len(called), late) == (1, [])
    reactor.wait(0.0)
    assert len(late) == 1
    for pair in (*pairs, late_pair):
        for end in pair:
            end.close()


def test_a_near_deadline_is_met_to_within_a_millisecond(reactor):
    """Sampling memory every millisecond must not become every other millisecond."""
    late_s = []
    for _ in range(200):  # on a busy machine most are late, however it waits
        moment_s = reactor.now_s() + 0.0011
        while reactor.now_s() < moment_s:
            reactor.wait(moment_s)
        late_s.append(reactor.now_s() - moment_s)
    assert sorted(late_s)[10] < 0.0006


def test_a_timer_that_is_due_wakes_the_loop_once(reactor):
    """The loop sleeps on and does not spin."""
    reactor.wait(reactor.now_s() + 0.002)
    began_s = reactor.now_s()
    reactor.wait(began_s + 0.2)
    assert reactor.now_s() - began_s >= 0.15


def test_gathered_events_are_seen_in_time(reactor):
    """Letting events gather loses none and delays no deadline."""
    reading, writing = ready_pair()
    seen = []
    reactor.watch(reading, seen.append)
    began_s = reactor.now_s()
    reactor.wait(began_s + 0.01, gather_s=60.0)
    assert 0.01 <= reactor.now_s() - began_s < 30.0
    assert len(seen) == 1
    for end in (reading, writing):
        end.close()


def test_a_call_scheduled_soon_runs_once_and_not_at_once(reactor):
    """Requested again meanwhile, it is still one call; it does not end another wait."""
    done = []
    began_s = reactor.now_s()
    for number in range(3):
        reactor.soon(lambda number=number: done.append((number, reactor.now_s())))
    reactor.wait(float("inf"))
    ((number, at_s),) = done
    assert number == 0
    assert at_s >= began_s + SOON_S
    reactor.soon(done.clear)
    reactor.wait(float("inf"))
    assert done == []
