"""Bugs that are planted on purpose are found, and their table is true."""

from itertools import chain

import pytest

from chaos.plants import PLANTS
from planted_bugs import table
from planted_bugs.bug import Layer, Promise
from planted_bugs.crashing import CRASH_BUGS
from planted_bugs.sowing import check
from planted_bugs.suites import SUITE_BUGS
from simulation import world
from simulation.many import sample
from simulation.planted import planted
from simulation.simulate import run_seed
from support.crash_points import filter as crash_filter
from support.readme import PAGES

BUGS_MIN = 40
PLANTED_HERE_MIN = 10
SOON = 100
"""Seeds: bugs that were seen this soon are hunted in each gate."""
BUGS, FOUND = table.read()
EVENTS = 12_000
"""Six times those of a usual life: what has no end by then is endless."""
LONG = {"the outdated ask on", "failed commit forgets ends"}
"""The life in which it is seen takes many seconds: `scripts/planted` hunts them."""
SOON_SEEN = {
    name: one.seeds
    for name, one in FOUND.items()
    if 0 < one.seeds <= SOON and name not in LONG
}
SOWN = (*PLANTS, *SUITE_BUGS)


@pytest.mark.parametrize("name", SOON_SEEN)
def test_a_planted_bug_is_seen_in_the_simulation(name, monkeypatch):
    """It breaks the same rule as before: an error of its own does not count.

    The seed that showed it the last time is run first, then a few more than it took
    then, because the code changes. `scripts/planted` begins with 0.
    """
    rule, last = FOUND[name].rule, SOON_SEEN[name] - 1
    monkeypatch.setattr(world, "EVENTS_MAX", EVENTS)
    seeds = chain([last], range(3 * SOON_SEEN[name] + SOON))
    with planted(name):
        assert any(
            rule == violation.rule
            for seed in seeds
            for violation in run_seed(seed).found
        )


@pytest.mark.skipif(
    not crash_filter.is_available(),
    reason="this kernel or architecture cannot tell a parent of system calls "
    "(seccomp user notification)",
)
@pytest.mark.parametrize("bug", CRASH_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_seen_at_a_crash_point(bug):
    """Or by a power cut."""
    assert bug.trials() is not None


@pytest.mark.parametrize("bug", SOWN, ids=lambda bug: bug.name)
def test_planted_bugs_still_match_the_source(bug):
    """The text that each replaces is in the source exactly once."""
    check(bug.edits)


def test_the_table_names_exactly_the_planted_bugs():
    """`scripts/planted` writes it; it names every planted bug and no other."""
    assert table.all_bugs() == BUGS
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= BUGS_MIN


def test_every_planted_bug_was_seen():
    """A test that cannot fail proves nothing."""
    assert [bug.name for bug in BUGS if bug.name not in FOUND] == []
    assert len(SOON_SEEN) + len(CRASH_BUGS) >= PLANTED_HERE_MIN


def test_every_gate_runs_the_lives_in_which_planted_bugs_were_seen():
    """However few lives it samples, those are among them."""
    seen_in = {one.seeds - 1 for one in FOUND.values() if one.seeds}
    assert seen_in <= set(sample())


def test_every_promise_is_broken_by_a_bug():
    """In the manual's words, and for every layer."""
    promised = [line.split("|")[1].strip() for line in _guarantees()]
    assert {bug.promise for bug in BUGS} == set(Promise)
    assert list(Promise) == promised
    assert {bug.layer for bug in BUGS} == set(Layer)


def _guarantees():
    """Return the rows of the manual's table of promises."""
    (page,) = [page for page in PAGES if page.stem == "guarantees"]
    text = page.read_text().partition("\n| promise |")[2].partition("\n\n")[0]
    return text.splitlines()[2:]
