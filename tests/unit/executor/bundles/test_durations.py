"""Which calls travel together, and how many."""

from jobpool.executor.bundles.bundle_file import CALLS_MAX
from jobpool.executor.bundles.durations import FUNCTIONS_MAX, SAMPLES_MIN, Durations
from jobpool.executor.bundles.grouping import BUNDLE_BYTES_MAX, grouped
from jobpool.executor.wire.messages import Task

QUICK_S, SLOW_S = 0.00002, 0.01


def fed(duration_s, times=SAMPLES_MIN):
    durations = Durations()
    for _ in range(times):
        durations.took(1, duration_s)
    return durations


def task(number, function=1, timeout_s=None, memory_bytes=None, max_crashes=1):
    return Task(number, b"", timeout_s, memory_bytes, max_crashes, function)


def groups(durations, tasks, most=CALLS_MAX):
    """Return the numbers of calls that travel together."""
    return [[t.number for t in group] for group in grouped(tasks, durations, most)]


def together(durations, function=1, timeout_s=None):
    """Return how many calls make a bundle."""
    calls = [task(n, function, timeout_s) for n in range(2 * CALLS_MAX)]
    return len(groups(durations, calls)[0])


def test_calls_keep_their_order():
    """Calls that travel together are neighbours, whatever they call."""
    durations = fed(QUICK_S)
    for _ in range(SAMPLES_MIN):
        durations.took(2, QUICK_S)
    calls = [
        task(0),
        task(1, function=2),
        task(2, function=3),  # unknown: alone
        task(3),
        task(4, max_crashes=2),
        task(5),
        task(6, timeout_s=5.0),
        task(7, timeout_s=5.0, function=2),
        task(8, memory_bytes=2**30),
        task(9, timeout_s=0.5),
        task(10),
    ]
    expected = [[0, 1], [2], [3], [4], [5], [6, 7], [8], [9], [10]]
    assert groups(durations, calls) == expected
    assert groups(durations, [task(n) for n in range(7)], 3) == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]


def test_a_function_of_unknown_duration_travels_alone():
    """Also while there are few samples."""
    assert together(Durations()) == 1
    assert together(fed(QUICK_S, SAMPLES_MIN - 1)) == 1


def test_quick_calls_travel_together_and_slow_ones_do_not():
    """The quicker, the more; never more than a bundle may have."""
    assert 1 < together(fed(0.0004)) < together(fed(QUICK_S))
    assert together(fed(0.0)) <= CALLS_MAX
    assert together(fed(SLOW_S)) == 1


def test_calls_with_a_short_time_limit_make_short_bundles():
    """No bundle is so long that its last calls have no time left."""
    durations = fed(QUICK_S)
    assert 1 < together(durations, timeout_s=1.0) < together(durations)
    assert together(durations, timeout_s=100.0) == together(durations)


def test_one_slow_call_stops_bundling_for_a_while():
    """One call of 20 ms does; quick ones make up for it."""
    durations = fed(QUICK_S)
    durations.took(1, 0.02)
    assert together(durations) == 1
    for _ in range(20):
        durations.took(1, QUICK_S)
    assert together(durations) > 1


def test_a_death_makes_a_functions_calls_travel_alone():
    """Those of other functions go on together."""
    durations = fed(QUICK_S)
    for _ in range(SAMPLES_MIN):
        durations.took(2, QUICK_S)
    durations.died(1)
    for _ in range(2 * SAMPLES_MIN):
        durations.took(1, QUICK_S)
    assert together(durations) == 1
    assert together(durations, 2) > 1


def test_the_number_of_remembered_functions_is_bounded():
    """A program that makes functions all the time does not make the host grow."""
    durations = fed(QUICK_S)
    for function in range(2, FUNCTIONS_MAX + 2):
        durations.took(function, QUICK_S)
    assert together(durations) == 1
    assert len(durations._means) == FUNCTIONS_MAX


def test_the_bytes_of_a_bundle_are_bounded():
    """Large calls travel in small bundles: one message carries a bundle."""
    calls = [task(number) for number in range(6)]
    for call in calls:
        call.call = bytes(BUNDLE_BYTES_MAX * 2 // 5)
    assert groups(fed(QUICK_S), calls) == [[0, 1], [2, 3], [4, 5]]
