"""The picture of a flow's steps."""

from hypothesis import given
from hypothesis import strategies as st

from jobpool.cli.admin.flows.layout import lines
from jobpool.words.flows.order import in_order

ORDERS = {0: (), 1: (0,), 2: (0,), 3: (1, 2), 4: (3,), 5: (3,)}
"""Charge, reserve and invoice side by side, ship, mail, refund."""


def drawn(before, shown=None):
    found = lines(before, before if shown is None else shown)
    return [line.stem + ",".join(map(str, line.steps)) for line in found]


@st.composite
def graphs(draw):
    """Return steps with those before them; numbers are in no special order."""
    numbers = draw(st.permutations(range(draw(st.integers(1, 12)))))
    return {
        number: draw(st.sets(st.sampled_from(numbers[:at]))) if at else set()
        for at, number in enumerate(numbers)
    }


def test_what_runs_side_by_side_stands_so_and_where_it_joins_the_margin_goes_on():
    """The picture of the theory of operation."""
    assert drawn(ORDERS) == ["0", "├─ 1", "├─ 2", "3", "├─ 4", "└─ 5"]


def test_a_chain_stays_at_its_margin():
    """Also within a branch: fifty steps do not leave the screen."""
    assert drawn({0: (), 1: (0,), 2: (1,)}) == ["0", "1", "2"]
    branches = {0: (), 1: (0,), 2: (1,), 3: (0,), 4: (2, 3)}
    assert drawn(branches) == ["0", "├─ 1", "│  2", "├─ 3", "4"]


def test_an_edge_that_others_imply_changes_nothing():
    """A mail that names the invoice still stands below what was shipped."""
    assert drawn(ORDERS | {4: (2, 3), 5: (0, 3)}) == drawn(ORDERS)


def test_beginnings_stand_side_by_side():
    """As if a step that has no line stood above them."""
    assert drawn({0: (), 1: (), 2: (0, 1)}) == ["├─ 0", "├─ 1", "2"]
    assert drawn({0: (), 1: ()}) == ["├─ 0", "└─ 1"]
    assert drawn({}) == []


def test_what_is_left_out_in_a_row_has_one_line():
    """Where it stood, also at the end."""
    before = {0: (), **dict.fromkeys(range(1, 9), (0,))}
    assert drawn(before, {0, 4}) == ["0", "├─ 1,2,3", "├─ 4", "├─ 5,6,7,8"]


def test_a_deep_stem_loses_its_beginning():
    """The last branch is what is still to be seen."""
    before = {0: ()}
    for depth in range(20):
        before |= {2 * depth + 1: (2 * depth,), 2 * depth + 2: (2 * depth,)}
    assert max(map(len, drawn(before))) <= 36 + 2
    assert drawn(before)[-1].startswith("…")


@given(graphs())
def test_each_step_has_one_line_below_all_that_come_before_it(before):
    """Whatever is drawn, nothing is lost, and time runs downwards."""
    found = [line.steps for line in lines(before, before)]
    assert sorted(found) == sorted((step,) for step in before)
    order = in_order(before)
    at = {step: place for place, step in enumerate(order)}
    assert all(at[one] < at[step] for step, ones in before.items() for one in ones)


@given(graphs())
def test_a_step_stands_at_or_right_of_the_margin_of_what_all_ways_lead_through(before):
    """No step stands left of one that dominates it; that is found the slow way here."""
    found = {line.steps[0]: line.stem for line in lines(before, before)}
    through: dict[int, set[int]] = {}
    for step in in_order(before):
        ways = [through[one] for one in before[step]]
        through[step] = {step, *(set.intersection(*ways) if ways else ())}
    for step, ones in through.items():
        for one in ones - {step}:
            assert len(found[one]) <= len(found[step])
