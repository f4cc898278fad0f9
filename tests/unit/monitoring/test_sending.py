"""What is sent beside the jobs: in the background, in bounds, each loss counted."""

import threading
from collections import Counter

import pytest

from jobpool.core.clock import SystemClock
from jobpool.monitoring.sending import Bounds, Sending
from jobpool.testing.fake_clock import FakeClock
from support.waiting import wait_until

PATIENCE_S = 30.0


class Carrier:
    """Sends to a list, but for what it is told not to."""

    def __init__(self):
        self.sent, self.told = [], []
        self.free = threading.Event()
        self.free.set()
        self.sends = threading.Event()

    def make(self, thing):
        if thing == "bad":
            raise ValueError("bad")
        return None if thing == "nothing" else thing

    def send(self, made):
        self.sends.set()
        assert self.free.wait(PATIENCE_S)
        if "refused" in made:
            raise OSError("no")
        self.sent += made
        self.sending.arrived(len(made))

    def tell(self, things, reason):
        self.told.append((things, reason))

    @property
    def lost(self):
        found = Counter()
        for things, reason in self.told:
            found[reason] += things
        return dict(found)


@pytest.fixture
def carrier():
    return Carrier()


def sending(carrier, things=100, at_once=10, size_bytes=100, clock=None):
    bounds = Bounds(things, at_once, size_bytes)
    carrier.sending = Sending("test", carrier, bounds, clock or SystemClock())
    return carrier.sending


def put(own, *things):
    for thing in things:
        own.put(thing, 1)


def test_all_is_sent_in_order_by_the_end(carrier):
    """Also what waits when it is asked to end; nothing is told when nothing is lost."""
    own = sending(carrier, at_once=2)
    put(own, 1, 2, "nothing", 3)
    own.start()
    put(own, 4)
    own.close(PATIENCE_S)
    assert carrier.sent == [1, 2, 3, 4]
    assert carrier.told == []


def test_a_bug_costs_only_what_it_happened_with(carrier):
    """And is told with its place; whatever comes later is sent."""
    own = sending(carrier, at_once=3)
    put(own, 1, "bad", 2, "refused", 3, 4, 5)
    own.start()
    own.close(PATIENCE_S)
    assert carrier.sent == [1, 2, 5]
    made, sent = carrier.lost
    assert made.startswith("ValueError: bad (test_sending.py:")
    assert sent.startswith("OSError: no (test_sending.py:")
    assert list(carrier.lost.values()) == [1, 3]


def test_what_finds_no_room_is_lost_and_the_rest_is_not(carrier):
    own = sending(carrier, things=3, size_bytes=5)
    for size_bytes in (4, 2, 1, 1, 0):  # the second is too large, the fifth too much
        own.put(size_bytes, size_bytes)
    own.start()
    own.close(PATIENCE_S)
    assert carrier.sent == [4, 1, 0]
    assert carrier.lost == {"too many waited to be sent": 2}


def test_the_log_is_told_now_and_then_of_all_that_is_lost(carrier):
    """At once of the first, then no more than twice a minute, and at the end."""
    clock = FakeClock()
    own = sending(carrier, at_once=1, clock=clock)
    own.start()
    put(own, "bad")
    wait_until(lambda: carrier.told, PATIENCE_S, "the first is told")
    put(own, "bad", "bad", 1)
    wait_until(lambda: carrier.sent == [1], PATIENCE_S, "these are behind it")
    assert [things for things, _ in carrier.told] == [1]
    clock.advance(31.0)
    put(own, 2)
    wait_until(lambda: len(carrier.told) == 2, PATIENCE_S, "they are told")
    put(own, "bad")
    own.close(PATIENCE_S)
    assert [things for things, _ in carrier.told] == [1, 2, 1]


def test_an_end_does_not_wait_for_what_hangs_and_counts_it(carrier):
    """What is being sent and what is behind it; once, even if it gets through later."""
    carrier.free.clear()
    own = sending(carrier, at_once=2)
    put(own, 1, 2, 3)
    own.start()
    assert carrier.sends.wait(PATIENCE_S)
    own.close(0.01)
    late, unanswered = "the end did not wait for them", "no answer came before the end"
    assert carrier.lost == {late: 1, unanswered: 2}
    own.lose(2, "gone")
    carrier.free.set()
    own._thread.join(PATIENCE_S)
    assert carrier.sent == [1, 2]
    assert carrier.lost == {late: 1, unanswered: 2}


def test_what_hangs_is_hurried_first(carrier):
    carrier.free.clear()
    own = sending(carrier)
    put(own, 1)
    own.start()
    assert carrier.sends.wait(PATIENCE_S)

    def hurry():
        carrier.free.set()
        own._thread.join(PATIENCE_S)

    own.close(0.01, hurry)
    assert (carrier.sent, carrier.told) == ([1], [])


def test_reasons_that_are_all_different_do_not_pile_up(carrier):
    own = sending(carrier)
    for number in range(100):
        own.lose(1, f"reason {number}")
    own.start()
    own.close(PATIENCE_S)
    assert len(carrier.told) <= 11
    assert sum(carrier.lost.values()) == 100
