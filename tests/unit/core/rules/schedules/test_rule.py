"""Rules: periods, their bounds and jitter; and which cannot be kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.schedules.rule import (
    Rule,
    between,
    check_rule,
    jitter_of,
    next_after,
)
from jobpool.errors import ConfigError

HOUR_MS = 3_600_000
# Both small and large: hypothesis prefers small numbers to those of a wide range.
PERIODS = st.integers(1, 100_000).map(lambda s: 1000 * s) | st.integers(1000, 10**12)
MOMENTS = st.integers(0, 1_000_000).map(lambda s: 997 * s) | st.integers(0, 4 * 10**12)


@given(PERIODS, MOMENTS, MOMENTS, st.none() | MOMENTS)
def test_a_period_is_a_grid_on_which_all_hosts_agree(every_ms, since_ms, at_ms, starts):
    """From where one looks does not matter; only the rule, and when it was given."""
    rule = check_rule(Rule(every_ms=every_ms, starts_ms=starts))
    later = next_after(rule, at_ms, since_ms=since_ms)
    anchor = since_ms if starts is None else starts
    assert later > at_ms
    assert (later - anchor) % every_ms == 0
    assert later >= (starts or 0)
    assert later - every_ms <= max(at_ms, (starts or 0) - 1)


def test_the_first_tick_comes_a_period_after_the_beginning_or_with_starts():
    every = Rule(every_ms=HOUR_MS)
    assert next_after(every, 5, since_ms=5) == HOUR_MS + 5
    begins = Rule(every_ms=HOUR_MS, starts_ms=90 * HOUR_MS)
    assert next_after(begins, 5, since_ms=5) == 90 * HOUR_MS
    from_end = Rule(every_ms=HOUR_MS, from_end=True, starts_ms=90 * HOUR_MS)
    assert next_after(from_end, 5) == 90 * HOUR_MS
    assert next_after(from_end, 90 * HOUR_MS + 7) == 91 * HOUR_MS + 7


@pytest.mark.parametrize(
    "rule", [Rule(cron="0 * * * *"), Rule(every_ms=HOUR_MS)], ids=["cron", "every"]
)
def test_ticks_are_from_starts_to_ends(rule):
    """Both are included."""
    cut = Rule(
        cron=rule.cron,
        every_ms=rule.every_ms,
        starts_ms=3 * HOUR_MS,
        ends_ms=5 * HOUR_MS,
    )
    found = list(between(check_rule(cut), -1, 100 * HOUR_MS))
    assert found == [3 * HOUR_MS, 4 * HOUR_MS, 5 * HOUR_MS]
    assert list(between(cut, 3 * HOUR_MS, 4 * HOUR_MS)) == [4 * HOUR_MS]


@given(st.text(), st.integers(1, HOUR_MS - 1))
def test_jitter_is_always_the_same_and_below_its_bound(name, jitter_ms):
    rule = check_rule(Rule(every_ms=HOUR_MS, jitter_ms=jitter_ms))
    assert 0 <= jitter_of(rule, name) < jitter_ms
    assert jitter_of(rule, name) == jitter_of(Rule(jitter_ms=jitter_ms), name)


def test_jitter_spreads_schedules_by_name():
    """As kept in stores: another digest would move the ticks of all of them."""
    rule = Rule(every_ms=HOUR_MS, jitter_ms=1000)
    found = [jitter_of(rule, f"digest-{number}") for number in range(1000)]
    assert found[:3] == [21, 966, 617]
    assert len({one // 100 for one in found}) == 10
    assert all(60 < [one // 100 for one in found].count(n) < 140 for n in range(10))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule(), "got neither; write cron="),
        (Rule(cron="@daily", every_ms=1000), "got both"),
        (Rule(every_ms=999), "every=999ms is out of range; expected 1s"),
        (Rule(every_ms=0), "every=0ms is out of range"),
        (Rule(every_ms=-5000), "is out of range"),
        (Rule(every_ms=10**16), "expected 1s to 100 years"),
        (Rule(cron="@daily", tz="Mars"), "tz 'Mars' is unknown"),
        (Rule(every_ms=1000, tz="Mars"), "tz 'Mars' is unknown"),
        (Rule(cron="0 0 31 2 *"), "day-of-month"),
        (Rule(cron="@daily", from_end=True), "counts a period"),
        (Rule(every_ms=1000, starts_ms=2, ends_ms=1), "starts is later than ends"),
        (Rule(every_ms=1000, starts_ms=-1), "starts is out of range"),
        (Rule(every_ms=1000, ends_ms=10**18), "ends is out of range"),
        (
            Rule(cron="0 0 1 1 *", starts_ms=1, ends_ms=HOUR_MS),
            "no time between starts and ends",
        ),
        (Rule(every_ms=1000, jitter_ms=-1), "jitter is negative"),
        (Rule(every_ms=1000, jitter_ms=1000), "jitter=1s is not below the period, 1s"),
        (
            Rule(cron="0 7,9 * * 1-5", jitter_ms=2 * HOUR_MS),
            "jitter=2h00m is not below the period, 2h00m",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(rule, said):
    with pytest.raises(ConfigError, match=said):
        check_rule(rule)


def test_jitter_may_be_as_long_as_the_shortest_period():
    """But a millisecond."""
    assert check_rule(Rule(cron="0 7,9 * * 1-5", jitter_ms=2 * HOUR_MS - 1))
