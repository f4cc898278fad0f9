"""Policies: the table of what happens to a tick, and which cannot be kept."""

from itertools import product

import pytest

from jobpool.core.rules.schedules.policy import (
    DECISIONS,
    Ahead,
    Buffer,
    Decision,
    Missed,
    Overlap,
    Policy,
    check_policy,
)
from jobpool.core.rules.schedules.rule import Rule
from jobpool.errors import ConfigError

EVERY_CASE = list(product(Overlap, Ahead, Buffer))


def test_every_case_has_a_decision():
    assert set(DECISIONS) == set(EVERY_CASE)


@pytest.mark.parametrize(("overlap", "ahead", "buffer"), EVERY_CASE)
def test_decisions(overlap, ahead, buffer):
    """Reckoned from what each policy promises, over the full product."""
    decision = DECISIONS[overlap, ahead, buffer]
    if overlap is Overlap.ALLOW_ALL:
        assert decision is Decision.START
        return
    # Two jobs are never unfinished at once; and a tick overtakes none that waits.
    is_first = ahead is Ahead.NOTHING and buffer is Buffer.EMPTY
    assert (decision is Decision.START) == is_first
    keeps = overlap is Overlap.BUFFER_ALL
    replaces = ahead is Ahead.RETRY and buffer is Buffer.EMPTY and not keeps
    assert (decision is Decision.REPLACE) == replaces
    if is_first or replaces:
        return
    match overlap:
        case Overlap.SKIP:  # nothing is lost to what was backfilled
            waits = ahead is Ahead.BACKFILLED and buffer is Buffer.EMPTY
        case Overlap.BUFFER_ONE:
            waits = buffer is Buffer.EMPTY
        case Overlap.BUFFER_ALL:
            waits = buffer is not Buffer.FULL
        case Overlap.CANCEL_OTHER:
            assert decision is Decision.CANCEL
            return
    assert decision is (Decision.BUFFER if waits else Decision.SKIP)


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize("retry_over_tick", [True, False])
def test_retries_are_kept_on_request_and_where_each_tick_is_to_run(
    overlap, retry_over_tick
):
    policy = Policy(overlap=overlap, retry_over_tick=retry_over_tick)
    each = overlap in (Overlap.BUFFER_ALL, Overlap.ALLOW_ALL)
    assert policy.keeps_retries == (retry_over_tick or each)


def test_what_is_meant_by_default():
    """One job for what was missed within a day, none beside a running one."""
    policy = check_policy(Policy(), Rule(every_ms=1000))
    assert (policy.missed, policy.overlap) == (Missed.ONE, Overlap.SKIP)
    assert (policy.catchup_window_s, policy.catchup_max) == (86_400, 1000)
    assert not policy.retry_over_tick
    assert not policy.pause_on_dead


@pytest.mark.parametrize(
    ("policy", "rule", "said"),
    [
        (Policy(catchup_window_s=59), Rule(every_ms=1000), "catchup_window=59s is out"),
        (Policy(catchup_window_s=367 * 86_400), Rule(every_ms=1000), "expected 1m00s"),
        (Policy(catchup_max=0), Rule(every_ms=1000), "catchup_max=0 is out of range"),
        (Policy(catchup_max=1001), Rule(every_ms=1000), "expected 1 to 1000"),
        (
            Policy(overlap=Overlap.CANCEL_OTHER, retry_over_tick=True),
            Rule(every_ms=1000),
            "cancels what retry_over_tick=True keeps",
        ),
        (
            Policy(overlap=Overlap.BUFFER_ONE),
            Rule(every_ms=1000, from_end=True),
            "none overlaps",
        ),
        (
            Policy(missed=Missed.SKIP),
            Rule(every_ms=1000, from_end=True),
            "none is missed",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(policy, rule, said):
    with pytest.raises(ConfigError, match=said):
        check_policy(policy, rule)
