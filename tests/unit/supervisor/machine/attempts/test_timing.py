"""When attempts began and ended, as the store is told."""

import pytest

from support.machine.world import World


@pytest.fixture
def world():
    return World().up()


def times_of(world):
    """Return the times of the only end, from when its job was sent."""
    (end,) = world.settled
    return end.began_s - 100.0, end.ended_s - 100.0


def begin(world):
    """Send a job to a child; that is at 100 s."""
    world.job()
    world.ring()


def test_an_end_that_arrives_late_is_told_as_of_when_it_was(world):
    """Its child, or we, had been stopped in between."""
    begin(world)
    world.now_s += 30
    world.done(0, began_s=102.0, duration_s=3.0)
    assert times_of(world) == (2.0, 5.0)


def test_so_is_one_that_others_have_to_hear_of(world):
    """Output goes another way than a plain success."""
    begin(world)
    world.now_s += 30
    world.done(0, began_s=102.0, duration_s=3.0, output=b"said")
    assert times_of(world) == (2.0, 5.0)


@pytest.mark.parametrize(
    ("began_s", "duration_s", "told"),
    [
        (0.0, 5.0, (0.0, 5.0)),
        (1e9, 5.0, (30.0, 30.0)),
        (102.0, 1e9, (2.0, 30.0)),
        (float("nan"), 5.0, (0.0, 5.0)),
        (float("-inf"), 5.0, (0.0, 5.0)),
        (float("inf"), 5.0, (30.0, 30.0)),
    ],
)
def test_a_child_is_believed_within_what_was_seen(world, began_s, duration_s, told):
    """Not before its job was sent, nor after its end was read."""
    begin(world)
    world.now_s += 30
    world.done(0, began_s=began_s, duration_s=duration_s)
    assert times_of(world) == told


def test_a_child_that_died_ended_when_that_was_seen(world):
    """Nobody can tell it better."""
    begin(world)
    world.now_s += 30
    world.died(0, signal=11)
    assert times_of(world) == (0.0, 30.0)


def test_the_hosts_sleep_counts(world):
    """The store's clock has not stood still."""
    begin(world)
    world.now_s += 30
    world.slept_s += 3600
    world.done(0, began_s=102.0, duration_s=28.0)
    assert times_of(world) == (2.0, 3630.0)
