"""Windows, breakers of downstreams, retry budgets: their tables and arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.quotas.allot import BucketState, LaneState, allot
from jobpool.core.rules.quotas.breaker import (
    SILENCE_MS,
    TRANSITIONS,
    Breaker,
    BreakerEvent,
    BreakerRule,
    BreakerState,
    Probe,
    check_breaker,
    reported,
)
from jobpool.core.rules.quotas.budget import (
    RetryBudget,
    begun,
    check_budget,
    free,
)
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.rules import Limit, Use
from jobpool.core.rules.quotas.window import SLOTS, Window
from jobpool.errors import ConfigError

NOW = 1_800_000_000_000
RULE = BreakerRule(requests=10)
STEPS = st.lists(
    st.tuples(st.integers(0, 20_000), st.integers(0, 9), st.integers(0, 9)), max_size=40
)


@given(STEPS)
def test_a_window_counts_all_of_its_time_and_at_most_a_slot_more(steps) -> None:
    """In at most 13 slots, however much is counted."""
    window, at_ms, counted = Window(), NOW, []
    for after_ms, first, second in steps:
        at_ms += after_ms
        window = window.add(at_ms, 60, first, second)
        counted.append((at_ms, first, second))
        sums = window.sums(at_ms, 60)
        for place in (0, 1):
            least, most = (
                sum(one[place + 1] for one in counted if at_ms - one[0] < long_ms)
                for long_ms in (60_000, 65_000)
            )
            assert least <= sums[place] <= most
        assert len(window.slots) <= SLOTS + 1


def test_a_clock_that_was_set_back_takes_nothing_out_of_a_window() -> None:
    """Unless by more than the window: then nobody knows."""
    window = Window().add(NOW, 60, 3, 1)
    assert window.sums(NOW - 30_000, 60) == (3, 1)
    assert window.add(NOW - 30_000, 60, 1, 0).sums(NOW - 30_000, 60) == (4, 1)
    assert window.sums(NOW - 3_600_000, 60) == (0, 0)


def test_taking_back_never_leaves_less_than_nothing() -> None:
    """What is taken back may have been dropped already."""
    assert Window().add(NOW, 60, -3, 1).sums(NOW, 60) == (0, 1)


@pytest.mark.parametrize("state", BreakerState)
@pytest.mark.parametrize("event", BreakerEvent)
def test_a_breaker_knows_what_each_event_does_in_each_state(state, event) -> None:
    """Only enough failures open it, and only its probe or an operator closes it."""
    after = TRANSITIONS[state][event]
    opens = {
        (BreakerState.CLOSED, BreakerEvent.BAD),
        (BreakerState.PROBING, BreakerEvent.PROBE_FAILED),
    }
    closes = {
        (BreakerState.PROBING, BreakerEvent.PROBE_ANSWERED),
        (BreakerState.PROBING, BreakerEvent.RESET),
        (BreakerState.OPEN, BreakerEvent.RESET),
    }
    assert ((state, event) in opens) == (
        after is BreakerState.OPEN and state is not after
    )
    assert ((state, event) in closes) == (
        after is BreakerState.CLOSED and state is not after
    )


def test_a_pause_doubles_with_each_failed_probe_up_to_ten_times() -> None:
    """And is the first one again after the service was back."""
    breaker, now_ms, pauses = Breaker(), NOW, []
    breaker = reported(breaker, RULE, {1: (10, 10)}, now_ms).breaker
    for token in range(2, 8):
        pauses.append((breaker.until_ms - now_ms) / 1000)
        now_ms = breaker.until_ms
        breaker = breaker.at(now_ms).probed_by(Probe(token, token))
        breaker = reported(breaker, RULE, {token: (1, 1)}, now_ms).breaker
    assert pauses == [30, 60, 120, 240, 300, 300]
    breaker = breaker.at(breaker.until_ms).probed_by(Probe(9, 9))
    assert reported(breaker, RULE, {9: (1, 0)}, now_ms).breaker == Breaker()


def test_a_probe_that_is_not_heard_of_is_waited_for_only_so_long() -> None:
    """From when its attempt was found to have ended; to look again changes nothing."""
    opened = reported(Breaker(), RULE, {1: (10, 10)}, NOW).breaker
    now_ms = opened.until_ms
    probing = opened.at(now_ms).probed_by(Probe(2, 2))
    assert probing.at(now_ms + 10**9) == probing
    missed = probing.missed(now_ms)
    assert missed.missed(now_ms + 1000) == missed
    assert missed.at(now_ms + SILENCE_MS - 1).is_probed
    assert missed.at(now_ms + SILENCE_MS).wants_probe
    late = reported(missed, RULE, {2: (1, 0)}, now_ms + SILENCE_MS - 1)
    assert late.breaker.state is BreakerState.CLOSED
    too_late = reported(missed, RULE, {2: (1, 0)}, now_ms + SILENCE_MS)
    assert too_late.breaker.wants_probe


@given(
    st.lists(
        st.tuples(st.integers(0, 9000), st.integers(0, 8), st.integers(0, 8)),
        max_size=60,
    ),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([Rate(1, 60.0), Rate(1, 1.0)]),
)
def test_in_no_minute_begin_more_retries_than_the_budget_has(steps, ratio, floor):
    """Whatever is wanted when; first attempts of a slot more may count."""
    budget, window, now_ms = RetryBudget(ratio, floor), Window(), NOW
    firsts, retries = [], []
    for after_ms, new, wanted in steps:
        now_ms += after_ms
        taken = min(wanted, free(budget, window, now_ms))
        window = begun(window, now_ms, firsts=new, retries=taken)
        retries += [now_ms] * taken
        firsts += [now_ms] * new
    for at_ms in retries:
        last = sum(at_ms - 60_000 < one <= at_ms for one in retries)
        counted = sum(at_ms - 65_000 < one <= at_ms for one in firsts)
        assert last <= max(floor.per_second * 60, ratio * counted)


def test_what_a_budget_did_not_use_is_not_made_up_for_at_once() -> None:
    """The service that retries wait for may just have come back."""
    budget, window = RetryBudget(0.2, Rate(1, 1.0)), Window()
    assert free(budget, window, NOW) == 5
    window = begun(window, NOW, firsts=3000)
    assert free(budget, window, NOW) == 50
    window = begun(window, NOW, retries=50)
    assert free(budget, window, NOW) == 0
    assert free(budget, window, NOW + 5000) == 50


def bucket(number, breaker=None, budget=None, **state):
    limit = Limit(breaker=RULE if breaker else None, budget=budget)
    return BucketState(
        *(number, limit, 0, 0, 0), **state, **({"breaker": breaker} if breaker else {})
    )


def lane(number, *uses):
    return LaneState(number, "cpu", "k", 0, number, tuple(uses))


def test_one_job_of_all_lanes_is_allotted_as_a_probe() -> None:
    """Whatever each costs; and none ahead of a slot that is free."""
    probing = bucket(1, Breaker(state=BreakerState.PROBING))
    lanes = [lane(n, Use(1, "q", "", cost)) for n, cost in ((1, 3), (2, 1), (3, 1))]
    found = allot(lanes, {1: probing}, 20, 0, NOW)
    assert [one.most for one in found] == [1, 0, 0]
    assert not any(one.most for one in allot(lanes, {1: probing}, 20, 20, NOW))


@pytest.mark.parametrize(
    ("breaker", "opens_at_ms", "blocked_by"),
    [
        (Breaker(state=BreakerState.OPEN, until_ms=NOW + 5), NOW + 5, None),
        (Breaker(state=BreakerState.PROBING, probe=Probe(1, 1)), None, 1),
        (
            Breaker(state=BreakerState.PROBING, probe=Probe(1, 1), until_ms=NOW + 7),
            NOW + 7,
            None,
        ),
    ],
)
def test_a_lane_waits_for_a_pause_or_for_an_answer(breaker, opens_at_ms, blocked_by):
    """A time that is known is waited for; an answer leaves a note."""
    (found,) = allot([lane(1, Use(1, "q", "", 1))], {1: bucket(1, breaker)}, 5, 0, NOW)
    assert (found.most, found.opens_at_ms, found.blocked_by) == (
        0,
        opens_at_ms,
        blocked_by,
    )


def test_first_attempts_pass_a_budget_that_has_nothing_left() -> None:
    """Retries wait for its next slot."""
    used_up = begun(Window(), NOW, retries=5)
    budget = bucket(1, budget=RetryBudget(), window=used_up)
    first, retry = (
        lane(n, Use(1, "retries", "", cost)) for n, cost in ((2, 0), (1, 1))
    )
    blocked, free_one = allot([retry, first], {1: budget}, 5, 0, NOW)
    assert (blocked.most, blocked.opens_at_ms) == (0, NOW + 5000)
    assert free_one.most == 5


@pytest.mark.parametrize(
    "numbers",
    [
        {"failures": 0},
        {"failures": 1.1},
        {"requests": 0},
        {"window_s": 0.5},
        {"pause_s": 100_000},
    ],
)
def test_a_breaker_that_cannot_work_is_refused(numbers) -> None:
    """With what is expected."""
    with pytest.raises(ConfigError, match=r"^stripe: .* is out of range; expected"):
        check_breaker(BreakerRule(**numbers), "stripe")


@pytest.mark.parametrize(
    "budget", [RetryBudget(-0.1), RetryBudget(101), RetryBudget(0.2, Rate(1, 3600.0))]
)
def test_a_budget_under_which_jobs_might_never_be_retried_is_refused(budget) -> None:
    """With what is expected."""
    with pytest.raises(ConfigError, match=r"^shop: .*; expected"):
        check_budget(budget, "shop")
