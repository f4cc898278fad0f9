"""A kind's circuit breaker: its table, its pauses, and how little it lets through."""

import pytest

from jobpool.core.rules.circuit_breaker import (
    NEXT,
    OPEN_FIRST_S,
    OPEN_LAST_S,
    SLOW_FIRST_S,
    SLOW_LAST_S,
    Breaker,
    BreakerEvent,
    BreakerState,
)
from jobpool.errors import JobpoolBug

S, E = BreakerState, BreakerEvent
TRIED = {S.TRYING, S.PROBING}


@pytest.mark.parametrize("state", BreakerState)
@pytest.mark.parametrize("event", BreakerEvent)
def test_every_state_meets_every_event(state, event):
    """Every cell is defined.

    Only a success or an operator closes it; nothing else improves it.
    """
    assert set(NEXT) == set(S)
    following = NEXT[state][event]
    if event in {E.SUCCEED, E.RESUME}:
        assert following is S.CLOSED
    elif event in {E.STRAY, E.STRAY_WORSE}:
        assert (following is not None) == (state in TRIED)
        assert following in {None, *TRIED}
    elif event is E.START:
        assert (following is None) == (state in TRIED)
    else:
        assert following not in TRIED
    badness = [S.CLOSED, S.SLOWED, S.TRYING, S.OPEN, S.PROBING]
    if following is not None and event in {E.WORSE, E.STRAY_WORSE}:
        assert badness.index(following) >= badness.index(state) - (state is S.PROBING)


WAY = {
    # crash, worse, stray, worse stray, end, start
    S.CLOSED: (S.CLOSED, S.SLOWED, None, None, S.CLOSED, S.CLOSED),
    S.SLOWED: (S.SLOWED, S.OPEN, None, None, S.SLOWED, S.TRYING),
    S.TRYING: (S.SLOWED, S.OPEN, S.TRYING, S.PROBING, S.SLOWED, None),
    S.OPEN: (S.OPEN, S.OPEN, None, None, S.OPEN, S.PROBING),
    S.PROBING: (S.OPEN, S.OPEN, S.PROBING, S.PROBING, S.OPEN, None),
}


@pytest.mark.parametrize("state", S)
def test_the_transitions_of_a_trial(state):
    """A trial begins from rest and returns to rest with its end or its crash."""
    events = (E.CRASH, E.WORSE, E.STRAY, E.STRAY_WORSE, E.END, E.START)
    closing = {E.SUCCEED: S.CLOSED, E.RESUME: S.CLOSED}
    assert NEXT[state] == dict(zip(events, WAY[state], strict=True)) | closing


def crashed(count, breaker=None, first=1, now_s=0.0):
    breaker = breaker or Breaker("k", 5)
    for job_id in range(first, first + count):
        breaker.crash(job_id, 1000 + job_id, now_s)
    return breaker


def test_different_jobs_in_a_row_slow_a_kind_and_open_it():
    """The fifth slows it, the twentieth opens it."""
    assert crashed(4).state is S.CLOSED
    assert crashed(5).state is S.SLOWED
    assert crashed(19).state is S.SLOWED
    assert crashed(20).state is S.OPEN


def test_one_job_that_crashes_repeatedly_does_not_open_the_breaker():
    """It is a poison pill, and is quarantined by itself."""
    breaker = Breaker("k", 5)
    for token in range(50):
        breaker.crash(7, token, 0.0)
    assert (breaker.state, breaker.crashes) == (S.CLOSED, 1)


def test_one_job_at_a_time_is_tried_after_a_pause():
    """Nothing else may begin until it has ended, and then only after a longer pause."""
    breaker = crashed(5)
    assert not breaker.may_begin(0.0)
    assert breaker.may_begin(SLOW_FIRST_S)
    breaker.begin(77)
    assert breaker.is_tried(77)
    assert not breaker.may_begin(1e9)
    breaker.crash(77, 77, 10.0)
    assert not breaker.may_begin(10.0 + 1.9 * SLOW_FIRST_S)
    assert breaker.may_begin(10.0 + 2 * SLOW_FIRST_S)


def test_pauses_grow_to_their_bounds():
    """Up to a minute while slowed, up to an hour while open."""
    slowed = [crashed(n).pause_s() for n in range(5, 20)]
    assert slowed == sorted(slowed)
    assert slowed[0] == SLOW_FIRST_S
    assert slowed[-1] == SLOW_LAST_S
    opened = [crashed(n).pause_s() for n in range(20, 40)]
    assert opened == sorted(opened)
    assert (opened[0], opened[-1]) == (OPEN_FIRST_S, OPEN_LAST_S)


def test_a_crash_of_an_older_attempt_does_not_end_the_trial():
    """A job that began before the kind was slowed crashes while another is tried."""
    breaker = crashed(5)
    breaker.begin(77)
    breaker.crash(500, 500, 1.0)
    assert (breaker.state, breaker.crashes) == (S.TRYING, 6)
    crashed(14, breaker, first=600)
    assert breaker.state is S.PROBING
    breaker.end(77, 2.0, began=True)
    assert breaker.state is S.OPEN


def test_a_trial_that_was_handed_back_costs_no_time():
    """It never began; another may be tried at once."""
    breaker = crashed(5)
    breaker.begin(77)
    breaker.end(78, 3.0, began=True)
    assert breaker.state is S.TRYING
    breaker.end(77, 3.0, began=False)
    assert breaker.may_begin(3.0)


def test_an_inconclusive_trial_starts_a_new_pause():
    """It took a slot for a while: the pause begins at its end."""
    breaker = crashed(5)
    breaker.begin(77)
    breaker.end(77, 100.0, began=True)
    assert not breaker.may_begin(100.0 + 0.9 * SLOW_FIRST_S)
    assert breaker.may_begin(100.0 + SLOW_FIRST_S)


def test_a_success_forgets_everything():
    """The next crash is the first one again."""
    breaker = crashed(30)
    breaker.close(E.SUCCEED)
    assert breaker.may_begin(0.0)
    assert crashed(4, breaker).state is S.CLOSED


def test_the_saved_state_is_enough_to_go_on():
    """Another supervisor, or the next run of this one, waits equally long."""
    breaker = crashed(21, now_s=100.0)
    saved = breaker.saved(130.0)
    assert (saved.state, saved.crashes, saved.last_job) == (S.OPEN, 21, 21)
    other = Breaker("k", 5)
    other.adopt(saved, 7.0)
    assert other.next_s - 7.0 == breaker.next_s - 130.0
    other.crash(21, None, 7.0)
    assert other.crashes == 21
    breaker.begin(5)
    breaker.adopt(crashed(5).saved(0.0), 0.0)
    assert breaker.state is S.PROBING, "what is tried here is not interrupted"


@pytest.mark.parametrize(("crashes", "resting"), [(6, S.SLOWED), (21, S.OPEN)])
def test_a_trial_is_not_saved_and_does_not_shorten_the_pause(crashes, resting):
    """A successor knows of no trial: the kind rests, for as long as before."""
    breaker = crashed(crashes)
    rested_s = breaker.pause_s()
    breaker.begin(77)
    assert breaker.state is not resting
    assert breaker.saved(0.0).state is resting
    assert breaker.pause_s() == rested_s


def test_an_impossible_event_is_reported_as_a_bug():
    """Two at a time are never tried."""
    breaker = crashed(5)
    breaker.begin(1)
    with pytest.raises(JobpoolBug, match="trying met start"):
        breaker.begin(2)


def test_a_lower_threshold_applies_from_the_next_crash():
    """The saved count may exceed it, when an operator has lowered ``breaker_after``."""
    before = crashed(6, Breaker("k", 10))
    assert before.state is S.CLOSED
    after = Breaker("k", 5)
    after.adopt(before.saved(0.0), 0.0)
    assert crashed(1, after, first=50).state is S.SLOWED
    opened = Breaker("k", 5)
    opened.adopt(crashed(30, Breaker("k", 10)).saved(0.0), 0.0)
    assert opened.state is S.SLOWED
    assert crashed(1, opened, first=50).state is S.OPEN
