"""A sketch gives quantiles to within 5 %, and says when it cannot know them."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.usage.sketch import (
    BUCKET_MAX,
    GROWTH,
    Counts,
    Quantile,
    buckets_of,
    quantile,
    value_of,
)

values = st.floats(1.0, 2.0**50)


def sketch_of(
    seen: list[float], censored: list[float] | None = None
) -> dict[int, Counts]:
    """Return the counts of values, and of censored ones besides."""
    cut = Counter(buckets_of(censored or []))
    all_of = Counter(buckets_of(seen)) + cut
    return {bucket: Counts(n, cut[bucket]) for bucket, n in all_of.items()}


@given(values)
def test_a_value_lies_in_its_bucket(value: float) -> None:
    (bucket,) = buckets_of([value])
    assert value <= value_of(bucket) * (1 + 1e-9)
    assert bucket == 0 or value > value_of(bucket - 1) * (1 - 1e-9)


def test_what_is_no_size_or_too_large_has_a_bucket_as_well() -> None:
    """A child reports its figures itself."""
    odd = [-1.0, 0.0, math.nan, 0.2, 1.0, 1e300, math.inf]
    assert buckets_of(odd) == [0, 0, 0, 0, 0, BUCKET_MAX, BUCKET_MAX]


@given(st.lists(values, min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_never_below_and_at_most_5_percent_above(
    seen: list[float], share: float
) -> None:
    found = quantile(sketch_of(seen), share)
    assert found is not None
    assert not found.is_least
    rank = max(1, math.ceil(share * len(seen) - 1e-6))
    true = sorted(seen)[rank - 1]
    assert true * (1 - 1e-6) <= found.value <= true * GROWTH * (1 + 1e-6)


def test_of_nothing_there_is_no_quantile() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({3: Counts(0)}, 0.5) is None


def test_two_sketches_are_added_by_their_counts() -> None:
    one, two = sketch_of([10.0] * 9), sketch_of([1000.0])
    both = {**one, **two}
    assert quantile(both, 0.9) == quantile(one, 0.9)
    assert quantile(both, 0.95) == quantile(two, 0.95)


def test_a_quantile_beyond_what_was_censored_is_only_a_lower_bound() -> None:
    """Three of ten were killed at 512: nobody knows the P90, but the P50 is known."""
    killed = sketch_of([100.0] * 7, [512.0] * 3)
    assert quantile(killed, 0.5) == Quantile(value_of(buckets_of([100.0])[0]))
    highest = value_of(buckets_of([512.0])[0])
    assert quantile(killed, 0.9) == Quantile(highest, is_least=True)


def test_what_was_censored_early_counts_only_until_then() -> None:
    """Half of those that reach 100 end there, whatever was cut before."""
    cut = sketch_of([100.0, 1000.0], [10.0] * 98)
    assert quantile(cut, 0.5) == quantile(sketch_of([100.0, 1000.0]), 0.5)


def test_a_value_and_a_censored_one_in_one_bucket_count_as_ended_first() -> None:
    same = sketch_of([100.0], [100.0])
    assert quantile(same, 0.5) == Quantile(value_of(buckets_of([100.0])[0]))
    found = quantile(same, 0.51)
    assert found is not None
    assert found.is_least
