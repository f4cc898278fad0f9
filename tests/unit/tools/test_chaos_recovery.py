"""A chaos run's recovery times are separated by what else was struck meanwhile."""

from types import SimpleNamespace

import pytest

from chaos.crew import Life
from chaos.nemesis import RATES, Blow
from chaos.recovery import (
    ALONE,
    CALM,
    FAULTS,
    IDLE,
    NEVER,
    PROBATION,
    SLOTS_OWN,
    STRUCK_AGAIN,
    recoveries,
)

MS = 1_000_000
CHILDREN = "ms from a child's death to its slot's next job"
RESTARTS = "ms from a supervisor's start to its first lease"


def blow(sort, from_ms, until_ms=None, run="a", slot=None):
    """Return a blow."""
    return Blow(sort, from_ms * MS, (until_ms or from_ms) * MS, run, slot, 77)


def change(at_ms, job, before, after):
    """Return a change of a job's state."""
    return SimpleNamespace(at_ms=at_ms, job=job, old_state=before, state=after)


ALWAYS = (change(0, 0, None, "runnable"),)
GRANT_MS = 1
"""Before its begin."""


def measured(
    *blows, begins=(), lives=(), leased=(), calm_s=(0, 0), changes=ALWAYS, lost=()
):
    """Return the recoveries of a run: begins and leased are pairs of run and ms."""
    leases = {
        token: SimpleNamespace(
            job=token,
            run=run,
            slot="cpu/0",
            from_ms=at_ms - GRANT_MS,
            outcome="succeeded",
        )
        for token, (run, at_ms) in enumerate((*begins, *leased))
    }
    leases |= {-number: lease for number, lease in enumerate(lost, 1)}
    attempts = {
        token: SimpleNamespace(token=token, began_ns=at_ms * MS)
        for token, (_run, at_ms) in enumerate(begins)
    }
    accounts = SimpleNamespace(
        leases=leases,
        attempts=attempts,
        blows=list(blows),
        lives=list(lives),
        jobs=[SimpleNamespace(job=token, kind="steady") for token in leases],
        changes=changes,
        died_ms={"b": 9_000},
    )
    return recoveries(accounts, calm_s)


DEATH = blow("child killed", 10_000, slot="cpu/0")
NEXT = ("a", 10_030)


def test_a_death_alone_counts_until_the_slots_next_job():
    """In the storm or in calm weather; the job that had begun before does not count."""
    begins = (("a", 9_990), NEXT, ("a", 10_500))
    assert measured(DEATH, begins=begins)[CHILDREN] == {ALONE: {"n": 1, "max": 30.0}}
    calm = measured(DEATH, begins=begins, calm_s=(9, 11))[CHILDREN]
    assert calm == {CALM: {"n": 1, "max": 30.0}}


@pytest.mark.parametrize("sort", FAULTS)
def test_a_span_during_another_blow_is_counted_under_that_blow(sort):
    """It lasts into the span, falls into it, or its consequences do."""
    fault = FAULTS[sort]
    after_ms = round(1000 * fault.after_s)
    for other in (
        blow(sort, 9_000, 10_010),
        blow(sort, 10_010, 10_020),
        blow(sort, 9_000, 10_000 - after_ms),
    ):
        counted = measured(DEATH, other, begins=[NEXT], calm_s=(9, 11))[CHILDREN]
        assert counted == {fault.under: {"n": 1, "max": 30.0}}
    for other in (blow(sort, 10_031), blow(sort, 5_000, 9_999 - after_ms)):
        assert measured(DEATH, other, begins=[NEXT])[CHILDREN].keys() == {ALONE}


@pytest.mark.parametrize("sort", FAULTS)
def test_a_blow_at_another_run_explains_nothing(sort):
    """Unless the store or the machine was struck."""
    other = blow(sort, 10_010, run="b")
    counted = measured(DEATH, other, begins=[NEXT])[CHILDREN]
    under = FAULTS[sort].under if FAULTS[sort].is_everybodys else ALONE
    assert counted.keys() == {under}


def test_a_span_with_a_struck_replacement_is_counted_separately():
    """The first span holds two recoveries; the second one is measured by itself."""
    again = blow("child killed", 10_020, slot="cpu/0")
    other = blow("child killed", 10_020, slot="cpu/1")
    counted = measured(DEATH, again, other, begins=[NEXT])[CHILDREN]
    assert counted == {
        ALONE: {"n": 1, "max": 10.0},
        STRUCK_AGAIN: {"n": 1, "max": 30.0},
        NEVER: {"n": 1},
    }


def test_a_slot_that_nothing_waits_for_is_not_slow():
    """A job must be waiting until the grant, or the span is counted separately."""
    own = [change(9_000, 0, None, "runnable"), change(10_029, 0, "runnable", "leased")]
    other = [
        change(9_000, 1, None, "runnable"),
        change(10_010, 1, "runnable", "canceled"),
    ]
    late = change(10_020, 0, None, "runnable")
    begins = [NEXT, ("a", 20_000)]
    for changes, under in (
        (own, ALONE),
        ([*other, *own], ALONE),
        ([*other, late], IDLE),
        ([late], IDLE),
        ([], IDLE),
    ):
        counted = measured(DEATH, begins=begins, changes=changes)[CHILDREN]
        assert counted.keys() == {under}


def test_the_probation_of_lost_jobs_explains_a_delay():
    """From their supervisor's death until they have ended: all others wait then."""
    for until_ms, under in ((10_015, PROBATION), (9_999, ALONE)):
        lost = [
            SimpleNamespace(
                job=70, run=run, slot="io/0", from_ms=from_ms, until_ms=end_ms,
                outcome=outcome,
            )
            for run, from_ms, end_ms, outcome in (
                ("b", 8_000, 9_500, "lost"),
                ("c", 9_600, until_ms, "succeeded"),
                ("c", 9_999_000, 9_999_999, "succeeded"),
            )
        ]  # fmt: skip
        counted = measured(DEATH, begins=[NEXT], lost=lost)[CHILDREN]
        assert counted.keys() == {under}


def test_a_restart_counts_until_its_first_lease():
    """And one that leases nothing is counted, too."""
    lives = [
        Life("s0", "a", 1_000 * MS, 9_000 * MS, "killed"),
        Life("s0", "c", 1_000 * MS, 1_100 * MS, "killed"),
    ]
    counted = measured(lives=lives, leased=[("a", 1_400 + GRANT_MS)])[RESTARTS]
    assert counted == {ALONE: {"n": 1, "max": 400.0}, NEVER: {"n": 1}}


def test_every_sort_of_blow_is_known():
    """A new one must not count as calm weather."""
    assert RATES.keys() <= FAULTS.keys() | SLOTS_OWN
