"""The limit on unfinished jobs: checked often enough, and counted when it is near."""

import pytest

from jobpool.errors import QueueFull
from jobpool.store.postgres import queue_depth
from jobpool.store.postgres.queue_depth import DepthGuard
from jobpool.store.sqlite import queue_depth as sqlite_depth
from support.store.storing import ManualClock


class Sizes:
    """A session that knows how much room there is, and how often it was asked."""

    def __init__(self, room, unfinished=0):
        self.room, self.unfinished, self.asked = room, unfinished, []

    def value(self, name, **_parameters):
        self.asked.append(name)
        return self.room if name == "room_left" else self.unfinished


@pytest.fixture
def now(monkeypatch):
    moment = [100.0]
    monkeypatch.setattr(queue_depth.time, "monotonic", lambda: moment[0])
    return moment


def test_with_much_room_one_depth_check_is_valid_for_100_ms(now):
    """And for half of the room that it found, no more."""
    guard, sizes = DepthGuard(1000), Sizes(500)
    for _ in range(3):
        guard.reserve(sizes, 100)
    assert sizes.asked == ["room_left"]
    guard.reserve(sizes, 100)
    assert sizes.asked == ["room_left"] * 2
    now[0] += 0.11
    guard.reserve(sizes, 1)
    assert sizes.asked == ["room_left"] * 3


def test_in_a_nearly_full_queue_each_call_checks_the_depth(now):
    """Less than a tenth is free: others may be as quick as this one."""
    guard, sizes = DepthGuard(1000), Sizes(99)
    for _ in range(3):
        guard.reserve(sizes, 1)
    assert sizes.asked == ["room_left"] * 3


def test_a_full_queue_is_counted_and_refuses(now):
    """The sizes are only a bound; the count is exact."""
    guard, sizes = DepthGuard(1000), Sizes(0, unfinished=999)
    guard.reserve(sizes, 1)
    with pytest.raises(QueueFull, match="holds 999 unfinished jobs of at most 1,000"):
        guard.reserve(sizes, 2)


def test_after_a_check_with_much_room_the_next_may_come_late(now):
    """Never the first check, nor while the last one is valid or found little room."""
    guard, sizes = DepthGuard(1000), Sizes(500)
    assert not guard.may_check_late(1)
    guard.reserve(sizes, 1)
    assert not guard.may_check_late(1)
    now[0] += 0.11
    assert guard.may_check_late(1)
    guard.admit(sizes, 1, 99, stored=1)
    now[0] += 0.11
    assert not guard.may_check_late(1)


@pytest.mark.parametrize("limit", [3, 4])
def test_a_late_depth_check_does_not_count_what_was_stored_with_it(now, limit):
    """The job being checked does not count as another one: the limit stays exact."""
    guard, sizes = DepthGuard(limit), Sizes(0, unfinished=4)
    if limit == 4:
        guard.admit(sizes, 1, 0, stored=1)
    else:
        with pytest.raises(QueueFull, match="holds 3 unfinished jobs of at most 3"):
            guard.admit(sizes, 1, 0, stored=1)


class Slow(Sizes):
    """A session that takes its time to count."""

    def __init__(self, unfinished, now, took_s):
        super().__init__(0, unfinished)
        self.now, self.took_s = now, took_s

    def value(self, name, **parameters):
        if name == "count_unfinished":
            self.now[0] += self.took_s
        return super().value(name, **parameters)


@pytest.mark.parametrize(("took_s", "stands"), [(0.09, False), (0.11, True)])
def test_a_slow_count_is_valid_for_nine_times_as_long(now, took_s, stands):
    """Less what was stored since; a quick count is repeated each time."""
    guard, sizes = DepthGuard(1000), Slow(997, now, took_s)
    guard.reserve(sizes, 1)
    guard.add(sizes, 1)
    now[0] += took_s * 8.9
    sizes.unfinished = 0
    if stands:
        guard.reserve(sizes, 1)
        with pytest.raises(QueueFull, match="holds 1,000 unfinished"):
            guard.reserve(sizes, 1)
    else:
        guard.reserve(sizes, 900)
    assert sizes.asked.count("count_unfinished") == 2 - stands
    now[0] += took_s * 0.2
    guard.reserve(sizes, 1)
    assert sizes.asked.count("count_unfinished") == 3 - stands


def test_a_tenth_of_the_limit_counts_as_much_room(now):
    """Then half of what is left after the jobs may be stored without a check."""
    guard, sizes = DepthGuard(1000), Sizes(100)
    guard.reserve(sizes, 10)
    guard.reserve(sizes, 45)
    assert len(sizes.asked) == 1
    guard.reserve(sizes, 1)
    assert len(sizes.asked) == 2
    now[0] += 0.1
    guard.reserve(sizes, 1)
    assert len(sizes.asked) == 3


def test_jobs_that_just_fit_are_accepted(now):
    """The limit is a number of jobs, not one less."""
    DepthGuard(1000).reserve(Sizes(3), 3)
    DepthGuard(1000).reserve(Sizes(2, unfinished=997), 3)
    with pytest.raises(QueueFull):
        DepthGuard(1000).reserve(Sizes(2, unfinished=998), 3)


class Bound:
    """SQLite's session: an upper bound that only a count reduces."""

    def __init__(self, clock, at_most, unfinished, took_s=0.0):
        self.clock, self.at_most, self.unfinished = clock, at_most, unfinished
        self.took_s, self.counts = took_s, 0

    def run(self, name, *, jobs, limit=0):
        if name == "set_room":
            self.at_most = jobs
        elif name == "add_room" or self.at_most + jobs <= limit:
            self.at_most += jobs
        else:
            return 0
        return 1

    def value(self, name):
        assert name == "count_unfinished"
        self.counts += 1
        self.clock.advance(self.took_s)
        return self.unfinished


def test_a_bound_that_is_reached_is_recounted():
    """And then it is as far from the limit as the jobs are."""
    clock = ManualClock()
    guard, session = sqlite_depth.DepthGuard(10, clock), Bound(clock, 8, 3)
    guard.reserve(session, 2)
    assert (session.counts, session.at_most) == (0, 10)
    guard.reserve(session, 7)
    assert (session.counts, session.at_most) == (1, 10)
    guard.add(session, 5)
    assert session.at_most == 15


def test_a_refusal_is_valid_for_nine_times_its_counting_time():
    """Producers that keep trying a full queue do not slow it down for others."""
    clock = ManualClock()
    guard, session = sqlite_depth.DepthGuard(10, clock), Bound(clock, 10, 10, took_s=2)
    refused = pytest.raises(
        QueueFull, match="holds 10 unfinished jobs of at most 10; 1"
    )
    with refused:
        guard.reserve(session, 1)
    clock.advance(17.9)
    with refused:
        guard.reserve(session, 1)
    assert session.counts == 1
    session.unfinished = 9
    clock.advance(0.1)
    guard.reserve(session, 1)
    assert session.counts == 2
