"""What is expensive to measure takes a share of the supervisor's time, and no more."""

import pytest

from jobpool.sandbox.metering.cost_limiter import (
    EXPENSIVE_S,
    NEAR_REST_FACTOR,
    REST_FACTOR,
    CostLimiter,
)


def spent_s(cost_s, for_s, *, near=False):
    """Measure whenever it is due; return how much time that has taken."""
    spent = 0.0
    limiter = CostLimiter(clock=lambda: spent)
    now_s = 0.0
    while now_s < for_s:
        if limiter.is_due(now_s, near=near):
            limiter.begin()
            spent += cost_s
            limiter.end(now_s)
        now_s += 0.001
    return spent


def test_an_expensive_measurement_takes_a_share_of_the_time():
    """A handler of thousands of threads gets a tenth of the supervisor, not all."""
    assert spent_s(0.1, 10.0) == pytest.approx(10.0 / REST_FACTOR, rel=0.1)


def test_near_a_limit_that_is_larger_but_never_all():
    """Who is near its limit is worth more, and may stay there for ever."""
    assert spent_s(0.1, 10.0, near=True) == pytest.approx(
        10.0 / NEAR_REST_FACTOR, rel=0.1
    )


def test_what_is_cheap_is_measured_whenever_it_is_asked_for():
    """What many threads cost is no reason to look less at few."""
    assert spent_s(0.9 * EXPENSIVE_S, 1.0) > 900 * 0.9 * EXPENSIVE_S


def test_an_expensive_measurement_may_be_tried_again():
    """Another attempt is not to suffer from the one before it."""
    spent = 0.0
    limiter = CostLimiter(clock=lambda: spent)
    limiter.begin()
    spent = 1.0
    limiter.end(0.0)
    assert not limiter.is_due(0.1)
    limiter.forget()
    assert limiter.is_due(0.1)
