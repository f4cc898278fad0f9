"""Expensive measurements take a share of the supervisor's time, and no more."""

import pytest

from jobpool.sandbox.metering.cost_limiter import (
    EXPENSIVE_S,
    NEAR_REST_FACTOR,
    REST_FACTOR,
    CostLimiter,
)


def spent_s(cost_s, for_s, *, near=False):
    """Measure whenever it is due; return the time spent."""
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
    """A handler with thousands of threads gets a tenth of the supervisor, not all."""
    assert spent_s(0.1, 10.0) == pytest.approx(10.0 / REST_FACTOR, rel=0.1)


def test_near_the_limit_the_share_is_larger_but_bounded():
    """A child near its limit deserves more, and may stay there forever."""
    assert spent_s(0.1, 10.0, near=True) == pytest.approx(
        10.0 / NEAR_REST_FACTOR, rel=0.1
    )


def test_a_cheap_measurement_is_made_whenever_requested():
    """The cost of many threads is no reason to sample few threads less often."""
    assert spent_s(0.9 * EXPENSIVE_S, 1.0) > 900 * 0.9 * EXPENSIVE_S


def test_an_expensive_measurement_may_be_tried_again():
    """An attempt must not suffer from the one before it."""
    spent = 0.0
    limiter = CostLimiter(clock=lambda: spent)
    limiter.begin()
    spent = 1.0
    limiter.end(0.0)
    assert not limiter.is_due(0.1)
    limiter.forget()
    assert limiter.is_due(0.1)
