"""How many calls of a function travel together."""

from jobpool.executor.speeds import FUNCTIONS_MAX, SAMPLES_MIN, Speeds
from jobpool.executor.tray import CALLS_MAX

QUICK_S, SLOW_S = 0.00002, 0.01


def fed(duration_s, times=SAMPLES_MIN):
    speeds = Speeds()
    for _ in range(times):
        speeds.took(1, duration_s)
    return speeds


def test_a_function_that_nobody_knows_travels_by_itself():
    """Also while there are few samples."""
    assert Speeds().together(1) == 1
    assert fed(QUICK_S, SAMPLES_MIN - 1).together(1) == 1


def test_quick_calls_travel_together_and_slow_ones_do_not():
    """The quicker, the more; never more than a bundle may have."""
    assert 1 < fed(0.0004).together(1) < fed(QUICK_S).together(1)
    assert fed(0.0).together(1) <= CALLS_MAX
    assert fed(SLOW_S).together(1) == 1


def test_calls_with_a_short_time_limit_make_short_bundles():
    """None is so long that calls at its end find its time used up."""
    speeds = fed(QUICK_S)
    assert 1 < speeds.together(1, 0.002) < speeds.together(1)
    assert speeds.together(1, 1.0) == speeds.together(1)


def test_one_slow_call_ends_the_haste_for_a_while():
    """One of 20 ms does; quick ones make up for it."""
    speeds = fed(QUICK_S)
    speeds.took(1, 0.02)
    assert speeds.together(1) == 1
    for _ in range(20):
        speeds.took(1, QUICK_S)
    assert speeds.together(1) > 1


def test_a_death_sends_a_functions_calls_by_themselves():
    """Those of other functions go on together."""
    speeds = fed(QUICK_S)
    for _ in range(SAMPLES_MIN):
        speeds.took(2, QUICK_S)
    speeds.died(1)
    for _ in range(2 * SAMPLES_MIN):
        speeds.took(1, QUICK_S)
    assert speeds.together(1) == 1
    assert speeds.together(2) > 1


def test_only_so_many_functions_are_remembered():
    """A program that makes functions all the time does not make the host grow."""
    speeds = fed(QUICK_S)
    for function in range(2, FUNCTIONS_MAX + 2):
        speeds.took(function, QUICK_S)
    assert speeds.together(1) == 1
    assert len(speeds._means) == FUNCTIONS_MAX
