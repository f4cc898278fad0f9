"""Back-off, budgets and limits: arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.limits import Effective, Limits, PoolLimits, resolve
from jobpool.core.rules.policy import (
    BACKOFF_MAX_S,
    Policy,
    RetryRule,
    backoff_s,
    matching_rule,
)


def test_backoff_grows_by_four_and_is_capped() -> None:
    """30 s, 2 min, 8 min, 32 min, then 1 h."""
    waits = [backoff_s(n, 0.0) for n in range(1, 8)]
    assert waits == [30, 120, 480, 1920, 3600, 3600, 3600]


@given(st.integers(1, 10_000), st.floats(-1, 1))
def test_backoff_stays_within_its_jitter(nth: int, spread: float) -> None:
    """No wait differs from its plain value by more than a fifth, after any failures."""
    plain = backoff_s(nth, 0.0)
    assert 0.8 * plain <= backoff_s(nth, spread) <= 1.2 * plain
    assert plain <= BACKOFF_MAX_S


def test_the_nearest_class_with_a_rule_wins() -> None:
    """A rule for the class itself beats one for its base; names may be unqualified."""
    never, often = RetryRule(never=True), RetryRule(max_attempts=9)
    policy = Policy(retry={"OSError": never, "shop.VendorDown": often})
    names = ["shop.VendorDown", "builtins.ConnectionError", "builtins.OSError"]
    assert matching_rule(policy, names) == "shop.VendorDown"
    assert matching_rule(policy, names[1:]) == "OSError"
    assert matching_rule(policy, ["builtins.ValueError"]) is None


def test_what_asks_to_be_tried_again_is_not_taken_for_what_never_is() -> None:
    """``{Exception: "never"}`` says of what is not expected; RetryLater is.

    A rule of its own class, or of one nearer than RetryLater, holds as ever; so do
    the budget and the delays of a rule of Exception.
    """
    never, often = RetryRule(never=True), RetryRule(delays_s=(9.0,), max_attempts=20)
    later = ["jobpool.errors.RetryLater", "builtins.Exception"]
    assert matching_rule(Policy(retry={"Exception": never}), later) is None
    assert matching_rule(Policy(retry={"Exception": often}), later) == "Exception"
    own = Policy(retry={"Exception": never, "RetryLater": never})
    assert matching_rule(own, later) == "RetryLater"
    near = Policy(retry={"OSError": never})
    assert matching_rule(near, ["shop.Away", "builtins.OSError", *later]) == "OSError"


POOL = PoolLimits(timeout_s=100, memory_bytes=1000)


@pytest.mark.parametrize(
    ("configured", "job", "declared", "expected"),
    [
        (None, None, None, 100),
        (None, None, 30, 30),
        (None, 20, 30, 20),
        (10, 20, 30, 10),
        (None, 500, None, 200),
    ],
)
def test_the_first_source_that_names_a_limit_wins_under_the_maximum(
    configured: float | None, job: float | None, declared: float | None, expected: float
) -> None:
    """Configuration, job, decorator, pool; never over the pool's maximum."""
    pool = PoolLimits(timeout_s=100, memory_bytes=1000, timeout_max_s=200)
    limits = resolve(
        configured=Limits(timeout_s=configured),
        job=Limits(timeout_s=job),
        declared=Limits(timeout_s=declared),
        pool=pool,
    )
    assert limits == Effective(timeout_s=expected, memory_bytes=1000)


def test_a_soft_limit_beyond_the_hard_one_is_dropped() -> None:
    """The hard limit comes first, so a later soft one would never apply."""
    late = resolve(
        configured=Limits(),
        job=Limits(timeout_s=5),
        declared=Limits(soft_timeout_s=10),
        pool=POOL,
    )
    assert late.soft_timeout_s is None
    early = resolve(
        configured=Limits(), job=Limits(), declared=Limits(soft_timeout_s=10), pool=POOL
    )
    assert early.soft_timeout_s == 10


@pytest.mark.parametrize(
    ("ran_out", "maximum", "expected"),
    [
        (0, None, 100),
        (1, None, 200),
        (2, None, 400),
        (3, None, 700),
        (1000, None, 700),
        (3, 300, 300),
        (1, 50, 50),
    ],
)
def test_memory_grows_after_each_out_of_memory(
    ran_out: int, maximum: int | None, expected: int
) -> None:
    """By its factor, up to the pool's maximum.

    Without one up to half of the machine.
    """
    pool = PoolLimits(
        timeout_s=1,
        memory_bytes=80,
        memory_max_bytes=maximum,
        memory_growth_max_bytes=700,
    )
    declared = Limits(memory_bytes=100, memory_growth=2.0)
    args = {"configured": Limits(), "job": Limits(), "declared": declared}
    assert resolve(**args, pool=pool, ran_out=ran_out).memory_bytes == expected


def test_memory_without_growth_stays_the_same() -> None:
    """And a limit above every maximum is not cut by growing."""
    pool = PoolLimits(timeout_s=1, memory_bytes=800, memory_growth_max_bytes=700)
    for growth in (None, 1.0, 4.0):
        limits = resolve(
            configured=Limits(memory_growth=growth),
            job=Limits(),
            declared=Limits(memory_growth=8.0) if growth is not None else Limits(),
            pool=pool,
            ran_out=2,
        )
        assert limits.memory_bytes == 800
