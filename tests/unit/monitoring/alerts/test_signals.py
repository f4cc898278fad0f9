"""When what is wrong becomes an incident: a table, and times."""

import itertools

import pytest

from jobpool.monitoring.alerts.notes import Signal, SignalState
from jobpool.monitoring.alerts.signals import (
    GAP_S,
    MOVES,
    ON,
    Judgement,
    Verdict,
    changes,
)

WRONG, BETWEEN, WELL = Judgement
ABOUT = ("failure_rate", "k")
"""Wrong for 60 s before it opens, well for 300 s before it ends."""


class Watched:
    """One subject over time."""

    def __init__(self):
        self.signals, self.now_ms = (), 0

    def look(self, judgement, after_s=15.0, **more):
        self.now_ms += round(after_s * 1000)
        verdict = {ABOUT: Verdict(judgement, "it fails", **more)}
        found = changes(self.signals, verdict, self.now_ms, passed_s=after_s)
        self.signals = found.signals
        return len(found.opened) - len(found.ended)


def test_an_incident_opens_once_it_was_wrong_for_long_enough():
    one = Watched()
    assert [one.look(WRONG) for _ in range(6)] == [0, 0, 0, 0, 1, 0]


def test_what_is_well_or_in_between_meanwhile_begins_anew():
    one = Watched()
    said = [WRONG, WRONG, WRONG, BETWEEN, WRONG, WRONG, WRONG, WRONG, WELL]
    assert [one.look(each) for each in said] == [0] * 9
    assert one.signals == ()


def test_an_incident_ends_once_all_was_well_for_long_enough():
    """What swings to and fro meanwhile is one incident."""
    one = Watched()
    assert one.look(WRONG, for_s=0.0) == 1
    assert [one.look(WELL, 100.0) for _ in range(3)] == [0, 0, 0]
    assert [one.look(each, 100.0) for each in (BETWEEN, WELL, WRONG)] == [0, 0, 0]
    assert [one.look(WELL, 100.0) for _ in range(4)] == [0, 0, 0, -1]
    assert one.signals == ()


def test_time_in_which_nobody_looked_counts_for_nothing():
    """A pool was wrong then and is now: nobody knows of meanwhile."""
    one = Watched()
    assert one.look(WRONG) == 0
    assert one.look(WRONG, GAP_S + 1) == 0
    assert [one.look(WRONG) for _ in range(4)] == [0, 0, 0, 1]


def test_what_no_rule_speaks_of_any_more_is_well():
    """A kind that is gone, a rule that was turned off, or one of another release."""
    for rule in ("dead", "a_rule_that_was"):
        before = [Signal(rule, "k", SignalState.OPEN, 0)]
        found = changes(before, {}, 15_000, passed_s=15.0)
        assert (found.signals, found.ended) == ((), ((rule, "k"),))


@pytest.mark.parametrize(
    ("state", "judgement"), [*itertools.product(SignalState, Judgement)], ids=str
)
def test_the_table_is_whole(state, judgement):
    """An incident never opens or ends without having risen or fallen before."""
    following = MOVES[state][judgement]
    is_open = {SignalState.OPEN, SignalState.FALLING}
    assert (following in is_open) == (state in is_open)
    if judgement is WRONG:
        assert following in {SignalState.RISING, SignalState.OPEN}
    assert following not in ON or ON[following] is not following
