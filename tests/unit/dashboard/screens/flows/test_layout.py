"""Where the boxes and edges of a flow's graph are."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.dashboard.screens.flows.folding import ranks_of
from jobpool.dashboard.screens.flows.layout import Sizes, laid_out

SIZES = Sizes(width=100, height=40, across=50, down=20, bend=10, margin=5)


def drawn(before):
    edges = [(one, step) for step, its in before.items() for one in sorted(its)]
    return laid_out(ranks_of(before), edges, SIZES)


@st.composite
def graphs(draw, most=14):
    """Return steps with those before them; numbers are in no special order."""
    numbers = draw(st.permutations(range(draw(st.integers(1, most)))))
    return {
        number: draw(st.sets(st.sampled_from(numbers[:at]), max_size=3)) if at else ()
        for at, number in enumerate(numbers)
    }


@given(graphs())
def test_no_box_covers_another_and_edges_lead_to_the_right(before):
    """Everything is within the picture."""
    picture = drawn(before)
    boxes = picture.boxes
    assert boxes.keys() == before.keys()
    for one, (left, top) in boxes.items():
        assert SIZES.margin <= left <= picture.width - SIZES.width - SIZES.margin
        assert SIZES.margin - 0.2 <= top
        assert top + SIZES.height <= picture.height - SIZES.margin + 0.2
        for other, (its_left, its_top) in boxes.items():
            assert one == other or left != its_left or abs(top - its_top) >= 59.8
    for (first, last), points in picture.edges.items():
        assert points[0] == (boxes[first][0] + 100, pytest.approx(boxes[first][1] + 20))
        assert points[-1] == (boxes[last][0], pytest.approx(boxes[last][1] + 20))
        assert all(left < right for (left, _), (right, _) in pairwise(points))


@given(graphs())
def test_an_edge_passes_no_box(before):
    """Where it passes a rank, it runs level between the boxes of that."""
    picture = drawn(before)
    for points in picture.edges.values():
        for (left, level), (right, same) in zip(
            points[1:-1:2], points[2:-1:2], strict=True
        ):
            assert level == same
            assert right - left == SIZES.width
            for its_left, top in picture.boxes.values():
                is_beside = level <= top or level >= top + SIZES.height
                assert its_left != left or is_beside


def test_a_chain_is_a_straight_line():
    picture = drawn({0: (), 1: (0,), 2: (1,)})
    assert [picture.boxes[n] for n in range(3)] == [(5, 5), (155, 5), (305, 5)]
    assert (picture.width, picture.height) == (410, 50)


def test_what_joins_stands_in_the_middle_of_what_it_joins():
    picture = drawn({0: (), 1: (0,), 2: (0,), 3: (1, 2)})
    tops = {step: top for step, (_, top) in picture.boxes.items()}
    assert tops[0] == tops[3] == pytest.approx((tops[1] + tops[2]) / 2)


def test_edges_that_need_not_cross_do_not():
    """Two chains whose numbers are mixed stand one above the other."""
    picture = drawn({0: (), 1: (), 2: (1,), 3: (0,), 4: (3,), 5: (2,)})
    tops = {step: top for step, (_, top) in picture.boxes.items()}
    assert tops[0] == tops[3] == tops[4]
    assert tops[1] == tops[2] == tops[5] != tops[0]


def test_nothing_is_drawn_of_nothing():
    """A flow of hooks alone has no graph."""
    assert laid_out({}, [], SIZES).boxes == {}
