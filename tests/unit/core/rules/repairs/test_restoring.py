"""Where a restored store goes on: above all that can have been given out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.repairs.restoring import (
    CLOCK_ERROR_S,
    GRANTS_PER_S,
    IDS_MAX,
    TOKENS_MAX,
    age_s,
    ids_after,
    tokens_after,
)
from jobpool.errors import StoreRefused, UsageError

NOW_MS = 1_800_000_000_000
DAY_S = 86_400.0


def test_the_age_counts_from_the_oldest_that_is_known():
    """The newest time in a store is from before the backup was taken."""
    hour_ms = 3_600_000
    ages = [
        age_s(now_ms=NOW_MS, newest_ms=newest, lost_since_ms=lost)
        for newest, lost in (
            (NOW_MS - hour_ms, None),
            (NOW_MS - hour_ms, NOW_MS),
            (NOW_MS - hour_ms, NOW_MS - 3 * hour_ms),
            (None, NOW_MS - 2 * hour_ms),
            (NOW_MS + hour_ms, None),
        )
    ]
    assert ages == [3600.0, 3600.0, 10_800.0, 7200.0, -3600.0]


def test_an_age_that_cannot_be_told_is_asked_for():
    """An empty store has no time, and one from the future says nothing."""
    with pytest.raises(UsageError, match=r"holds no time.*--lost-since.*Nothing was"):
        age_s(now_ms=NOW_MS, newest_ms=None)
    ahead_ms = NOW_MS + round(CLOCK_ERROR_S * 1000) + 1000
    with pytest.raises(UsageError, match=r"is .* from now.*--lost-since"):
        age_s(now_ms=NOW_MS, newest_ms=ahead_ms)
    assert age_s(now_ms=NOW_MS, newest_ms=ahead_ms, lost_since_ms=NOW_MS) == 0.0


@given(
    counter=st.integers(0, 2**40),
    lives=st.lists(
        st.tuples(
            st.floats(0, 30 * DAY_S),  # how long it worked until it was lost
            st.floats(0, 0.999),  # the share of the highest rate
            st.booleans(),  # whether that life is backed up, at its end
        ),
        max_size=6,
    ),
    error_s=st.floats(0, CLOCK_ERROR_S),
)
def test_no_token_is_given_twice(counter, lives, error_s):
    """However often any of its backups is restored, and whatever was granted since.

    At most at the highest rate, and one clock error: of those that wrote the backup.
    """
    highest, now_s, backup = counter, 0.0, (counter, 0.0)
    for worked_s, share, is_backed_up in lives:
        given_last = int(highest + share * GRANTS_PER_S * worked_s)
        now_s += worked_s
        if is_backed_up:
            backup = (given_last, now_s)
        start, taken_s = backup
        age = now_s - taken_s - error_s  # the backup's times were too late
        try:
            highest = tokens_after(start, age)
        except StoreRefused:
            return
        assert highest >= given_last
        assert ids_after(start, age) == highest


def test_what_somebody_has_seen_is_never_given_again():
    """However high it is."""
    assert ids_after(5, 0.0) == 5 + GRANTS_PER_S * 86_400
    assert ids_after(5, 0.0, 10**12) == 10**12


def test_a_store_whose_tokens_would_run_out_is_refused():
    """Nearly three years of backups' age fit; ids stay readable everywhere."""
    years = 2.75 * 365 * DAY_S
    assert tokens_after(0, years) <= TOKENS_MAX
    with pytest.raises(StoreRefused, match=r"leaves this store no tokens.*Nothing was"):
        tokens_after(TOKENS_MAX // 2, years)
    with pytest.raises(StoreRefused, match=r"can be read everywhere.*Nothing was"):
        ids_after(IDS_MAX, 0.0)
