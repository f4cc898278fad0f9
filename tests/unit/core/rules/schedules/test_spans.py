"""Spans: counts and the newest times are those that a walk would find."""

from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.schedules.rule import Rule, between
from jobpool.core.rules.schedules.spans import (
    COUNTED_MAX,
    count_between,
    newest_between,
)

MINUTE_MS = 60_000
DAY_MS = 1440 * MINUTE_MS
YEAR_MS = 365 * DAY_MS
# In minutes and a little: hypothesis prefers small numbers to those of a wide range.
MOMENTS = st.builds(
    lambda minutes, rest: minutes * MINUTE_MS + rest,
    st.integers(0, 2 * 1440),
    st.sampled_from([0, 0, 1, MINUTE_MS - 1]),
)
RULES = st.sampled_from(
    [
        {"every_ms": 7 * MINUTE_MS},
        {"every_ms": DAY_MS},
        {"cron": "*/9 * * * *"},
        {"cron": "0 0 2 * *"},
        {"cron": "0 0 1 2 *"},
    ]
)


@given(RULES, MOMENTS, MOMENTS, MOMENTS, st.tuples(*2 * [st.none() | MOMENTS]))
def test_counts_and_newest(parts, after, until, since, bounds):
    rule = Rule(**parts, starts_ms=bounds[0], ends_ms=bounds[1])
    after, until = min(after, until), max(after, until)
    found = list(between(rule, after, until, since_ms=since))
    assert count_between(rule, after, until, since_ms=since) == len(found)
    for count in (0, 1, 5, 1000):
        newest = newest_between(rule, after, until, since_ms=since, count=count)
        assert newest == (found[-count:] if count else [])


def test_an_empty_span_has_none():
    rule = Rule(every_ms=MINUTE_MS)
    for until in (5 * MINUTE_MS, 4 * MINUTE_MS):
        assert count_between(rule, 5 * MINUTE_MS, until, since_ms=0) == 0
        assert newest_between(rule, 5 * MINUTE_MS, until, since_ms=0, count=3) == []


def test_a_long_span_is_cut_short(monkeypatch):
    """Ten years of minutes cost no more than what is asked for."""
    looked_at = 0
    walk = between

    def counted(*args, **kwargs):
        nonlocal looked_at
        for tick in walk(*args, **kwargs):
            looked_at += 1
            yield tick

    monkeypatch.setattr("jobpool.core.rules.schedules.spans.between", counted)
    every = Rule(every_ms=1000)
    assert count_between(every, 0, 10 * YEAR_MS, since_ms=0) == COUNTED_MAX
    rule = Rule(cron="* * * * *")
    assert count_between(rule, 0, 10 * YEAR_MS, since_ms=0) == COUNTED_MAX
    found = newest_between(rule, 0, 10 * YEAR_MS, since_ms=0, count=1000)
    assert (len(found), found[-1]) == (1000, 10 * YEAR_MS)
    assert looked_at < 2 * COUNTED_MAX
