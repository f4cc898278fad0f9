"""A memory trail keeps the shape of an attempt's memory in at most 64 points."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.memory_trail import POINTS_MAX, MemoryTrail

MIB = 2**20
steps = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 2**40)), min_size=1, max_size=400
)


def trail_of(samples: list[tuple[int, int]]) -> MemoryTrail:
    """Return the trail of these samples."""
    trail = MemoryTrail()
    for at_ms, size_bytes in samples:
        trail.add(at_ms, size_bytes)
    return trail


def test_few_samples_are_kept_as_they_are() -> None:
    samples = [(3, 40 * MIB), (103, 90 * MIB), (150, 60 * MIB)]
    assert trail_of(samples).points() == tuple(samples)


def test_without_a_sample_there_is_no_point() -> None:
    assert MemoryTrail().points() == ()


def test_another_attempt_begins_empty() -> None:
    trail = trail_of([(at_ms, at_ms) for at_ms in range(0, 9000, 3)])
    trail.begin()
    trail.add(1, 7)
    assert trail.points() == ((1, 7),)


def test_a_long_growth_keeps_its_shape() -> None:
    """A steady growth is a steady growth in the points, from its begin to its end."""
    points = trail_of([(at_ms, at_ms * 1000) for at_ms in range(100_000)]).points()
    assert POINTS_MAX // 2 <= len(points) <= POINTS_MAX
    assert points[0] == (0, 0)
    assert points[-1] == (99_999, 99_999_000)
    gaps_ms = [b[0] - a[0] for a, b in pairwise(points[1:-1])]
    assert len(set(gaps_ms)) == 1


def test_a_spike_among_many_samples_stays() -> None:
    spike = (40_001, 512 * MIB)
    samples = [(at_ms, 41 * MIB) for at_ms in range(0, 100_000, 2)]
    assert spike in trail_of(sorted([*samples, spike])).points()


def test_dense_samples_make_room_for_sparse_ones() -> None:
    """Sampled each ms while it grew, then each 100 ms: later points find room."""
    dense = [(at_ms, at_ms) for at_ms in range(1000)]
    sparse = [(at_ms, 5) for at_ms in range(1000, 60_000, 100)]
    points = trail_of([*dense, *sparse]).points()
    assert len([one for one in points if one[0] >= 30_000]) >= POINTS_MAX // 8


@given(steps)
def test_any_samples_leave_the_first_the_highest_and_the_order(
    samples: list[tuple[int, int]],
) -> None:
    at_ms, absolute = 0, []
    for step_ms, size_bytes in samples:
        at_ms += step_ms
        absolute.append((at_ms, size_bytes))
    points = trail_of(absolute).points()
    assert len(points) <= POINTS_MAX
    assert set(points) <= set(absolute)
    assert points[0] == absolute[0]
    assert max(size for _, size in points) == max(size for _, size in absolute)
    assert list(points) == sorted(points, key=lambda point: point[0])
