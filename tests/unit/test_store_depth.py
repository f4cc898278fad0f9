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
