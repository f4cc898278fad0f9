"""When attempts began and ended, as the store records it."""

import pytest

from support.machine.world import World


@pytest.fixture
def world():
    return World().up()


def times_of(world):
    """Return the times of the only end, relative to when its job was sent."""
    (end,) = world.settled
    return end.began_s - 100.0, end.ended_s - 100.0


def begin(world):
    """Send a job to a child, at 100 s."""
    world.job()
    world.notify()


def test_a_late_end_is_recorded_with_its_true_time(world):
    """Its child, or the supervisor, had been stopped in between."""
    begin(world)
    world.now_s += 30
    world.done(0, began_s=102.0, duration_s=3.0)
    assert times_of(world) == (2.0, 5.0)


def test_a_late_end_with_output_is_recorded_with_its_true_time(world):
    """Output takes another path than a plain success."""
    begin(world)
    world.now_s += 30
    world.done(0, began_s=102.0, duration_s=3.0, output=b"said")
    assert times_of(world) == (2.0, 5.0)


@pytest.mark.parametrize(
    ("began_s", "duration_s", "times"),
    [
        (0.0, 5.0, (0.0, 5.0)),
        (1e9, 5.0, (30.0, 30.0)),
        (102.0, 1e9, (2.0, 30.0)),
        (float("nan"), 5.0, (0.0, 5.0)),
        (float("-inf"), 5.0, (0.0, 5.0)),
        (float("inf"), 5.0, (30.0, 30.0)),
    ],
)
def test_a_childs_times_are_limited_to_what_was_observed(
    world, began_s, duration_s, times
):
    """Not before its job was sent, nor after its end was read."""
    begin(world)
    world.now_s += 30
    world.done(0, began_s=began_s, duration_s=duration_s)
    assert times_of(world) == times


def test_a_child_that_died_ended_when_that_was_noticed(world):
    """No process knows better."""
    begin(world)
    world.now_s += 30
    world.died(0, signal=11)
    assert times_of(world) == (0.0, 30.0)


def test_time_asleep_counts_for_the_recorded_times(world):
    """The store's clock has not stood still."""
    begin(world)
    world.now_s += 30
    world.slept_s += 3600
    world.done(0, began_s=102.0, duration_s=28.0)
    assert times_of(world) == (2.0, 3630.0)
