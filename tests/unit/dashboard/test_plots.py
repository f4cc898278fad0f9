"""The geometry of plots: everything is inside, axes have round numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.dashboard.plots import columns, scale, stack

VALUES = st.lists(st.integers(0, 10**12), min_size=2, max_size=80)


@pytest.mark.parametrize(
    ("highest", "step", "most"),
    [
        *((0, 1, 1), (5e-324, 1, 1), (0.3, 1, 1), (1, 1, 1), (3, 1, 3)),
        *((43, 20, 60), (40, 10, 40), (1e6, 5e5, 1e6)),
    ],
)
def test_an_axis_has_few_round_levels_and_holds_the_highest(highest, step, most):
    assert scale(highest) == (step, most)


@given(st.floats(0, 1e15))
def test_an_axis_has_at_most_five_levels_above_zero(highest):
    step, most = scale(highest)
    assert most >= highest or most == 1
    assert most / step <= 5


@given(VALUES)
def test_a_stack_stays_within_its_frame(values):
    plot = stack(("good", "bad"), (values, values[::-1]))
    for band in plot.bands:
        for point in band.polygon.split():
            x, y = map(float, point.split(","))
            assert plot.left <= x <= plot.right
            assert plot.top - 0.1 <= y <= plot.bottom
    assert [stop.values[0] for stop in plot.stops] == values


@given(
    st.lists(st.none() | st.floats(0, 3), max_size=100),
    st.integers(0, 200),
    st.integers(0, 300),
)
def test_each_child_is_drawn_or_counted(shares, size, most):
    """Those that run first, then idle ones, then room to grow."""
    plot = columns(shares, size, most)
    size = max(size, len(shares))
    drawn = [one for one in plot.columns if one.tone != "room"]
    assert len(drawn) + plot.more == size
    running = [one for one in drawn if one.what is not None]
    assert [one.what for one in running] == list(range(len(running)))
    assert len(running) == min(len(shares), len(drawn))
    for one in plot.columns:
        assert 0 <= one.fill <= plot.tall
        assert one.x + plot.column <= plot.width
        assert one.y + plot.tall <= plot.height
        assert one.fill_y + one.fill == pytest.approx(one.y + plot.tall)


def test_a_child_that_has_work_is_seen_to_have_it():
    """Also if nothing is known of its attempt yet, or it uses almost nothing."""
    fills = [one.fill for one in columns([0.0001, None], 4, 6, busy=3).columns]
    assert fills == [2, 2, 2, 0, 0, 0]


def test_a_child_near_its_limit_has_the_colour_of_that():
    tones = [one.tone for one in columns([0.95, 0.8, 0.5, None], 4, 5).columns]
    assert tones == ["hot", "warm", "", "", "room"]
