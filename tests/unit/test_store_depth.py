"""The cap on unfinished jobs: looked at often enough, and counted when it is near."""

import pytest

from jobpool.errors import QueueFull
from jobpool.store.postgres import depth
from jobpool.store.postgres.depth import DepthGuard


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
    monkeypatch.setattr(depth.time, "monotonic", lambda: moment[0])
    return moment


def test_in_a_wide_queue_one_look_stands_for_a_moment(now):
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


def test_in_a_narrow_queue_each_call_looks(now):
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


def test_after_a_wide_look_the_next_may_come_late(now):
    """Never the first one, nor while the last one stands, nor when there was little."""
    guard, sizes = DepthGuard(1000), Sizes(500)
    assert not guard.looks_late(1)
    guard.reserve(sizes, 1)
    assert not guard.looks_late(1)
    now[0] += 0.11
    assert guard.looks_late(1)
    guard.admit(sizes, 1, 99, stored=1)
    now[0] += 0.11
    assert not guard.looks_late(1)


@pytest.mark.parametrize("limit", [3, 4])
def test_a_late_look_does_not_count_what_was_stored_with_it(now, limit):
    """The job that it judges is no other job: the limit stays exact."""
    guard, sizes = DepthGuard(limit), Sizes(0, unfinished=4)
    if limit == 4:
        guard.admit(sizes, 1, 0, stored=1)
    else:
        with pytest.raises(QueueFull, match="holds 3 unfinished jobs of at most 3"):
            guard.admit(sizes, 1, 0, stored=1)
