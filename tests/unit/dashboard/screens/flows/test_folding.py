"""Which steps of a large flow share a box."""

from graphlib import TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from jobpool.dashboard.screens.flows.folding import (
    BANDS_MAX,
    BOXES_MAX,
    FOLD_FROM,
    folded,
)


def fan(width, *, first=0):
    """Return a step, so many after it, and one after all of those."""
    middle = range(first + 1, first + 1 + width)
    return {first: (), **dict.fromkeys(middle, (first,)), first + width + 1: [*middle]}


def same(before, state="done"):
    return dict.fromkeys(before, state)


def test_a_small_flow_is_drawn_whole():
    before = fan(FOLD_FROM - 2)
    assert folded(before, same(before)) == [(n,) for n in range(FOLD_FROM)]


def test_many_that_stand_between_the_same_steps_share_a_box():
    before = fan(100)
    assert folded(before, same(before)) == [(0,), tuple(range(1, 101)), (101,)]


def test_what_looks_otherwise_has_a_box_of_its_own():
    """One failure among a hundred is seen."""
    before = fan(100)
    groups = folded(before, same(before) | {50: "failed"})
    assert (50,) in groups
    assert len(groups) == 4


def test_the_middle_of_a_long_chain_that_looks_the_same_shares_a_box():
    before = {0: (), **{n: (n - 1,) for n in range(1, 60)}}
    groups = folded(before, same(before) | {30: "running"})
    assert groups == [
        (0,),
        tuple(range(1, 30)),
        (30,),
        tuple(range(31, 59)),
        (59,),
    ]


def test_who_asks_for_the_whole_gets_it_unless_it_is_far_too_large():
    before = fan(100)
    assert len(folded(before, same(before), whole=True)) == 102
    large = fan(BOXES_MAX)
    assert len(folded(large, same(large), whole=True)) == 3


def test_a_flow_of_ten_thousand_steps_in_a_row_can_be_drawn():
    """Also if no two in a row look the same."""
    before = {0: (), **{n: (n - 1,) for n in range(1, 10_000)}}
    looks = {n: "done" if n % 2 else "failed" for n in before}
    assert len(folded(before, looks)) <= BANDS_MAX


@st.composite
def large_flows(draw):
    """Return ranks of steps, each after some of the rank before, and their looks."""
    widths = draw(st.lists(st.integers(1, 60), min_size=1, max_size=30))
    before, above, at = {}, [], 0
    for width in widths:
        rank = range(at, at + width)
        stride = draw(st.integers(1, 3))
        for n in rank:
            before[n] = above[(n % stride) :: stride] if above else ()
        above, at = list(rank), at + width
    looks = {n: "done" if n % draw(st.integers(2, 9)) else "failed" for n in before}
    return before, looks


@given(large_flows())
def test_each_step_is_in_one_box_and_boxes_have_no_circles(flow):
    before, looks = flow
    groups = folded(before, looks)
    assert sorted(step for group in groups for step in group) == sorted(before)
    assert len(groups) <= max(BOXES_MAX, BANDS_MAX, FOLD_FROM)
    box = {step: group[0] for group in groups for step in group}
    above = {group[0]: set() for group in groups}
    for step, its in before.items():
        above[box[step]] |= {box[one] for one in its} - {box[step]}
    assert len([*TopologicalSorter(above).static_order()]) == len(groups)
