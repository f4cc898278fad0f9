"""Rates: what begins is counted by brute force, in every window of time."""

from fractions import Fraction
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobpool.core.rules.quotas.gcra import (
    DELAY_MIN_S,
    SLOW_MAX_S,
    available,
    next_at_us,
    pace,
    returned,
    settled,
    taken,
)
from jobpool.core.rules.quotas.rate import Rate, parse_rate

EPOCH_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
RATES = st.sampled_from(
    [
        *("1/s", "10/s", "50/s", "1000/s", "100000/s"),
        *("7/3s", "100/m", "5/h", "1000/d", "0.3/s", "3/10s", "777/m"),
    ]
)
BURSTS = st.one_of(st.none(), st.integers(1, 4), st.integers(1, 200))


@st.composite
def paced(draw):
    """Return a rate, its burst, and its pace."""
    rate = parse_rate(draw(RATES))
    burst = draw(BURSTS)
    return rate, burst or rate.default_burst, pace(rate, burst)


def late_us(one):
    """Return the longest time from a claim to the begin: the request is no later."""
    return round(2 * one.begin_within_s * SECOND_US)


def over(begins, rate, burst):
    """Return a window in which too many began, or None; looks at every window."""
    per_us = Fraction(rate.permits) / Fraction(rate.per_s) / SECOND_US
    # In whole numbers: fractions would take most of the test's time.
    gained, scale = per_us.numerator * 10**6, per_us.denominator * 10**6
    spare = per_us.denominator
    begins = sorted(begins)
    for first, (from_us, _) in enumerate(begins):
        total = 0
        for until_us, cost in begins[first:]:
            total += cost
            if (total - burst) * scale > gained * (until_us - from_us) + spare:
                return until_us - from_us, total
    return None


class Bucket:
    """A bucket that is claimed from and returned to, and what began, in true time."""

    def __init__(self, one):
        self.pace = one
        self.tat_us = 0
        self.begins = []
        self.away = []

    def claim(self, now_us, clock_us, most, slow_us=0):
        """Grant at most so many; return how many."""
        self.tat_us = settled(self.pace, self.tat_us, clock_us)
        count = min(most, available(self.pace, self.tat_us, clock_us))
        if count:
            self.tat_us = taken(self.pace, self.tat_us, clock_us, count, slow_us)
        return count

    def bring_back(self, until_us):
        """Return the permits whose time has come."""
        while self.away and self.away[0][0] <= until_us:
            at_us, count, since_us = heappop(self.away)
            self.tat_us = returned(self.pace, self.tat_us, at_us, count, since_us)


STEPS = st.lists(
    st.tuples(
        st.floats(0, 3),  # how long after the one before, in intervals or seconds
        st.booleans(),  # which
        st.integers(1, 300),  # most permits
        st.floats(0, 1),  # how late it begins
    ),
    max_size=40,
)


@settings(max_examples=400)
@given(paced(), STEPS)
def test_no_window_of_begins_has_too_many(given_pace, steps):
    """Whatever is claimed, and however late within the time it begins."""
    rate, burst, one = given_pace
    bucket, now_us = Bucket(one), EPOCH_US
    for pause, in_seconds, most, late in steps:
        now_us += int(pause * (SECOND_US if in_seconds else one.interval_us))
        count = bucket.claim(now_us, now_us, most)
        bucket.begins.append((now_us + int(late * late_us(one)), count))
    assert over(bucket.begins, rate, burst) is None


@settings(max_examples=400)
@given(paced(), STEPS, st.lists(st.floats(0, 5), min_size=40, max_size=40))
def test_permits_that_come_back_let_nobody_begin_too_early(given_pace, steps, away):
    """Half of the claims are handed back, at any time; only what begins counts."""
    rate, burst, one = given_pace
    bucket, now_us = Bucket(one), EPOCH_US
    for (pause, in_seconds, most, late), back in zip(steps, away, strict=False):
        unit_us = SECOND_US if in_seconds else one.interval_us
        now_us += int(pause * unit_us)
        bucket.bring_back(now_us)
        count = bucket.claim(now_us, now_us, most)
        if count and late < 0.5:
            heappush(bucket.away, (now_us + int(back * unit_us), count, now_us))
        else:
            bucket.begins.append((now_us + int((2 * late - 1) * late_us(one)), count))
    assert over(bucket.begins, rate, burst) is None


SLOW = st.lists(
    st.sampled_from((0, 0, SECOND_US // 20, round(SLOW_MAX_S * SECOND_US))),
    min_size=40,
    max_size=40,
)


@settings(max_examples=400)
@given(paced(), STEPS, SLOW, st.lists(st.floats(0, 5), min_size=40, max_size=40))
def test_what_is_granted_slowly_may_begin_later(given_pace, steps, slow, away):
    """Its bucket has paid for that, whoever else is granted anything."""
    rate, burst, one = given_pace
    bucket, now_us = Bucket(one), EPOCH_US
    for (pause, in_seconds, most, late), slow_us, back in zip(
        steps, slow, away, strict=False
    ):
        unit_us = SECOND_US if in_seconds else one.interval_us
        now_us += int(pause * unit_us)
        bucket.bring_back(now_us)
        count = bucket.claim(now_us, now_us, most, slow_us)
        if count and back > 4:
            heappush(bucket.away, (now_us + int(late * unit_us), count, now_us))
        else:
            late_by_us = int(late * (late_us(one) + slow_us))
            bucket.begins.append((now_us + late_by_us, count))
    assert over(bucket.begins, rate, burst) is None


@settings(max_examples=300)
@given(paced(), STEPS, st.lists(st.floats(0, 100), min_size=40, max_size=40))
def test_a_clock_that_is_set_back_lets_nobody_begin_too_early(given_pace, steps, back):
    """In true time; a bucket then counts as empty at most."""
    rate, burst, one = given_pace
    bucket, now_us, behind_us = Bucket(one), EPOCH_US, 0
    for (pause, in_seconds, most, late), seconds in zip(steps, back, strict=False):
        now_us += int(pause * (SECOND_US if in_seconds else one.interval_us))
        if seconds > 80:
            behind_us += int(seconds * SECOND_US)
        count = bucket.claim(now_us, now_us - behind_us, most)
        bucket.begins.append((now_us + int(late * late_us(one)), count))
    assert over(bucket.begins, rate, burst) is None


@given(paced(), st.floats(0, 1), st.integers(1, 400))
def test_what_is_refused_may_be_had_when_it_is_said(given_pace, used, cost):
    """Then, and not a moment earlier."""
    _, burst, one = given_pace
    cost, now_us = min(cost, burst), EPOCH_US
    tat_us = now_us + int(used * burst * one.interval_us)
    at_us = next_at_us(one, tat_us, now_us, cost)
    assert available(one, tat_us, at_us) >= cost
    if at_us > now_us:
        assert available(one, tat_us, at_us - 2) < cost


def test_after_a_clock_was_set_back_nobody_waits_longer_than_for_an_empty_bucket():
    """If what is settled is stored; the old time would block until it has come."""
    one = pace(Rate(10, 1))
    tat_us = settled(one, EPOCH_US + 3600 * SECOND_US, EPOCH_US)
    at_us = next_at_us(one, tat_us, EPOCH_US, 1)
    empty_us = one.interval_us * (one.burst + 1 - one.capacity)
    assert at_us - EPOCH_US == empty_us + SLOW_MAX_S * SECOND_US
    assert available(one, tat_us, at_us) == 1


@given(paced())
def test_a_bucket_that_has_rested_has_its_whole_burst(given_pace):
    _, burst, one = given_pace
    assert available(one, 0, EPOCH_US) == burst


@given(paced(), st.integers(1, 200))
def test_permits_that_come_back_at_once_are_all_there_again(given_pace, cost):
    """Nothing was gained in between, so that nothing is kept back."""
    _, burst, one = given_pace
    cost = min(cost, burst)
    after = taken(one, EPOCH_US, EPOCH_US, cost)
    back = returned(one, after, EPOCH_US, cost, EPOCH_US)
    assert 0 <= back - EPOCH_US <= 1


def test_permits_that_come_back_late_bring_what_the_bucket_has_not_gained_since():
    one = pace(Rate(50, 1))
    tat_us = taken(one, 0, EPOCH_US, 50)
    later_us = EPOCH_US + 200_000  # ten intervals
    back_us = returned(one, tat_us, later_us, 50, EPOCH_US)
    assert tat_us - back_us == 40 * one.interval_us
    assert returned(one, tat_us, EPOCH_US + 2 * SECOND_US, 50, EPOCH_US) == tat_us


def test_permits_from_a_time_to_come_bring_nothing_back():
    """The clock was set back: nobody knows how long they were away."""
    one = pace(Rate(50, 1))
    tat_us = taken(one, 0, EPOCH_US, 50)
    assert returned(one, tat_us, EPOCH_US, 50, EPOCH_US + 1) == tat_us


def test_what_emptied_a_bucket_for_others_may_come_back_before_theirs():
    """Permits are away from when they were granted, not from when others filled it.

    Else seven would begin here within 1.5 s, where 6.5 may.
    """
    one = pace(Rate(1, 1), 5)
    bucket = Bucket(one)
    for count in (3, 1):
        assert bucket.claim(EPOCH_US, EPOCH_US, count) == count
    heappush(bucket.away, (EPOCH_US + SECOND_US, 3, EPOCH_US))
    heappush(bucket.away, (EPOCH_US + 3 * SECOND_US, 1, EPOCH_US))
    for at_ms, most in ((2000, 4), (3500, 3)):
        now_us = EPOCH_US + at_ms * 1000
        bucket.bring_back(now_us)
        count = bucket.claim(now_us, now_us, most)
        bucket.begins.append((now_us + (at_ms == 2000) * late_us(one), count))
    assert over(bucket.begins, Rate(1, 1), 5) is None


@given(paced())
def test_in_demand_a_rate_is_used_up(given_pace):
    """A burst of 1 + rate * 0.05 s keeps all of it, and a slow rate 98 % of it."""
    rate, burst, one = given_pace
    spacing_s = one.interval_us / SECOND_US
    used = 1 / spacing_s / rate.per_second
    if burst >= 1 + rate.per_second * DELAY_MIN_S:
        assert used == pytest.approx(1)
    else:
        floor = burst / (1 + rate.per_second * DELAY_MIN_S)
        assert 0.999 * min(floor, 0.98) <= used <= 1
    assert one.capacity >= 1


@pytest.mark.parametrize(
    ("rate", "burst", "expected"),
    [
        ("50/s", None, (20_000, 25.5, 0.245)),
        ("10/s", 20, (100_000, 15, 0.25)),
        ("10/s", 2, (100_000, 1.5, 0.025)),
        ("10/s", 1, (150_000, 1, 0.025)),
        ("1/h", 1, (3_600_500_000, 1, 0.25)),
    ],
)
def test_worked_numbers(rate, burst, expected):
    found = pace(parse_rate(rate), burst)
    interval_us, capacity, _, begin_within_s = found
    assert (interval_us, capacity, begin_within_s) == pytest.approx(expected)
