"""Proposed limits fit what was seen, waste little, and say what is not known."""

import math
import random
from collections import Counter

import pytest

from jobpool.core.rules.usage.sketch import Counts, buckets_of
from jobpool.core.rules.usage.tuning import (
    ATTEMPTS_LEAST,
    ATTEMPTS_SURE,
    UNEVEN,
    Verdict,
    correlation,
    memory_proposal,
    over,
    recycling,
    rounded_size,
    rounded_time,
    timeout_proposal,
)

MIB = 2**20
N = 20_000


def sketch(values, limit=math.inf):
    """Attempts that were ended at *limit* are counted there, as cut short."""
    counts = Counter(buckets_of([min(one, limit) for one in values]))
    cut = Counter(buckets_of([limit for one in values if one > limit]))
    return {bucket: Counts(n, cut[bucket]) for bucket, n in counts.items()}


def quantile_of(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


EVEN = {
    "constant": lambda r: 90 * MIB,
    "nearly constant": lambda r: r.gauss(200, 2) * MIB,
    "normal": lambda r: max(1, r.gauss(300, 60)) * MIB,
    "uniform": lambda r: r.uniform(20, 900) * MIB,
    "two sizes": lambda r: (60 if r.random() < 0.7 else 640) * MIB,
    "mild tail": lambda r: r.lognormvariate(math.log(100), 0.3) * MIB,
    "longer tail": lambda r: r.lognormvariate(math.log(80), 0.8) * MIB,
    "exponential": lambda r: (30 + r.expovariate(1 / 40)) * MIB,
    "by input": lambda r: (40 + 4 * r.triangular(0, 100, 10)) * MIB,
    "huge": lambda r: r.uniform(5, 6) * 1024 * MIB,
}


@pytest.mark.parametrize("name", EVEN)
@pytest.mark.parametrize("seed", range(3))
def test_a_proposal_kills_below_one_in_200_and_wastes_at_most_half(name, seed):
    """Judged on attempts that it has not seen."""
    dice = random.Random(f"{name}{seed}")
    seen, later = ([EVEN[name](dice) for _ in range(N)] for _ in range(2))
    p99, p995 = quantile_of(later, 0.99), quantile_of(later, 0.995)
    assert p995 < UNEVEN * p99  # it is a kind of which this is promised
    found = memory_proposal(sketch(seen), 16 * 1024 * MIB)
    assert not found.uneven
    assert sum(one > found.proposed for one in later) < 0.005 * N
    assert found.proposed <= 1.5 * p99
    assert found.verdict is Verdict.LOWER


def test_a_kind_of_which_few_need_far_more_is_named():
    """No limit is near what most need and spares the few."""
    dice = random.Random(7)
    few = [(800 if dice.random() < 0.007 else 50) * MIB for _ in range(N)]
    found = memory_proposal(sketch(few), 1024 * MIB)
    assert found.uneven
    assert found.proposed >= 800 * MIB  # it kills nobody for all that


def test_where_the_need_is_unknown_a_limit_grows_by_a_step():
    """One in twenty was killed there: they need more, and nobody knows how much."""
    dice = random.Random(1)
    needs = [(900 if dice.random() < 0.05 else 100) * MIB for _ in range(5000)]
    found = memory_proposal(sketch(needs, 512 * MIB), 512 * MIB)
    assert found.p99_is_least
    assert found.verdict is Verdict.RAISE
    assert found.proposed == pytest.approx(768 * MIB, rel=0.06)
    assert found.cut_short == sum(one > 512 * MIB for one in needs)


def test_what_something_else_has_ended_says_nothing_of_a_limit():
    """Killed for their memory after a second, they say nothing of a time limit."""
    counts = sketch([1500.0] * 500, 1000.0)
    time = timeout_proposal(counts, 600.0)
    assert time.p99_is_least
    assert (time.verdict, time.proposed, time.next) == (Verdict.KEEP, None, 600.0)
    canceled = sketch([100 * MIB] * 500, 50 * MIB)
    assert memory_proposal(canceled, 1024 * MIB).verdict is Verdict.KEEP
    assert memory_proposal(canceled, 52 * MIB).verdict is Verdict.RAISE


def test_killed_attempts_are_never_averaged_in():
    """Few were killed at a low limit: P99 comes from those that were not."""
    dice = random.Random(2)
    needs = [dice.uniform(50, 100) * MIB for _ in range(9990)]
    counts = sketch(needs)
    low = buckets_of([20 * MIB])[0]
    counts[low] = Counts(10, 10)
    found = memory_proposal(counts, 256 * MIB)
    assert found.p99 == pytest.approx(99.5 * MIB, rel=0.06)
    assert found.cut_short == 10


@pytest.mark.parametrize(
    ("now_mib", "verdict"),
    [
        (32, Verdict.RAISE),  # nearly all are over it
        (100, Verdict.KEEP),  # a little more than needed
        (1024, Verdict.LOWER),
        (None, Verdict.RAISE),  # no limit is known
    ],
)
def test_a_limit_grows_fast_and_shrinks_only_for_a_good_part(now_mib, verdict):
    counts = sketch([80 * MIB] * 5000)
    found = memory_proposal(counts, None if now_mib is None else now_mib * MIB)
    assert found.verdict is verdict
    changes = verdict is not Verdict.KEEP
    assert found.next == (found.proposed if changes else now_mib * MIB)


@pytest.mark.parametrize("attempts", [0, 1, ATTEMPTS_LEAST - 1])
def test_too_few_attempts_propose_nothing(attempts):
    for propose in (memory_proposal, timeout_proposal):
        found = propose(sketch([64 * MIB] * attempts), 512.0)
        assert (found.verdict, found.proposed) == (Verdict.UNKNOWN, None)
        assert found.attempts == attempts


def test_few_attempts_say_how_little_they_know():
    """Of 200 the upper end of P99 is above all that was seen; of 900 it is not."""
    dice = random.Random(3)
    values = [dice.lognormvariate(0, 0.5) * 50 * MIB for _ in range(ATTEMPTS_SURE)]
    few = memory_proposal(sketch(values[:200]), 512 * MIB)
    low, high = few.p99_between
    assert low <= few.p99
    assert high is None
    assert few.proposed >= 1.25 * max(values[:200])
    more = memory_proposal(sketch(values[:900]), 512 * MIB)
    assert more.p99_between[0] <= more.p99 <= more.p99_between[1]
    assert memory_proposal(sketch(values), 512 * MIB).p99_between is None


def test_a_time_limit_has_room_for_a_busy_host():
    quick = timeout_proposal(sketch([5.0] * 5000), 600.0)
    assert (quick.proposed, quick.verdict) == (10.0, Verdict.LOWER)
    slow = timeout_proposal(sketch([20_000.0] * 5000), 600.0)
    assert slow.proposed == 90.0
    assert slow.p50 == pytest.approx(20.0, rel=0.06)
    hanging = timeout_proposal(sketch([100_000.0] * 500, 30_000.0), 30.0)
    assert hanging.p99_is_least
    assert hanging.verdict is Verdict.RAISE


def test_the_replayed_consequence_counts_attempts_over_a_limit():
    counts = sketch([50 * MIB] * 990 + [200 * MIB] * 10)
    assert over(counts, 100 * MIB) == 10
    assert over(counts, 300 * MIB) == 0
    assert memory_proposal(counts, 100 * MIB).over_now == 10


@pytest.mark.parametrize(
    ("grown", "room", "jobs"),
    [
        (1 * MIB, 200 * MIB, 100),
        (3 * MIB, 200 * MIB, 30),
        (4096, 100 * MIB, 10_000),
        (80 * MIB, 100 * MIB, 1),
        (80 * MIB, -1, 1),
    ],
)
def test_a_child_is_replaced_before_half_of_its_room_is_gone(grown, room, jobs):
    assert recycling(grown, room) == jobs


@pytest.mark.parametrize("size", [1, 1000, 3 * MIB, 64 * MIB + 1, 777 * MIB, 2**40 + 1])
def test_sizes_are_rounded_up_and_by_little(size):
    found = rounded_size(size)
    assert found >= size
    assert found % MIB == 0
    assert found <= max(MIB, size * 1.04 + MIB)


def test_times_are_rounded_up_to_what_people_write():
    assert [rounded_time(one) for one in (0, 11, 100, 3601, 10**7)] == [
        *(10, 15, 120, 5400, 10**7)
    ]


def test_the_correlation_is_that_of_ranks():
    """Any rise is 1, any fall is -1; ties share ranks; what never changes is 0."""
    rising = [(x, x**3) for x in range(20)]
    assert correlation(rising) == pytest.approx(1)
    assert correlation([(x, -y) for x, y in rising]) == pytest.approx(-1)
    assert correlation([(x, 5) for x in range(20)]) == 0
    assert correlation([(1, 2)]) == correlation([]) == 0
    assert 0.5 < correlation([(1, 1), (1, 2), (2, 2), (3, 3)]) < 1
