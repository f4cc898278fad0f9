"""How often a child is measured, and how loose the backstop of its memory is."""

import pytest

from jobpool.sandbox.metering.sampling import (
    EXPENSIVE_S,
    NEAR_REST_FACTOR,
    REST_FACTOR,
    SAMPLE_MAX_S,
    SAMPLE_MIN_S,
    CostLimiter,
    backstop_bytes,
    next_sample_s,
)

MIB = 2**20


@pytest.mark.parametrize(
    ("rss", "limit", "expected"),
    [
        (0, 2**40, SAMPLE_MAX_S),
        (0, 256 * MIB, 256 / 8192),
        (250 * MIB, 256 * MIB, SAMPLE_MIN_S),
        (300 * MIB, 256 * MIB, SAMPLE_MIN_S),
    ],
)
def test_memory_is_sampled_faster_near_the_limit(rss, limit, expected):
    """The wait is the headroom at 8 GiB/s, between 2 and 100 ms."""
    assert next_sample_s(rss, limit) == pytest.approx(expected)


def test_the_backstop_is_far_above_the_limit():
    """The backstop leaves twice the limit and what OpenBLAS needs."""
    assert backstop_bytes(256 * MIB) == 576 * MIB


def test_growing_memory_is_sampled_twice_as_often():
    """Only near the limit; a child that does not grow costs no more than before."""
    assert next_sample_s(255 * MIB, 256 * MIB, grows=True) == SAMPLE_MIN_S / 2
    assert next_sample_s(255 * MIB, 256 * MIB) == SAMPLE_MIN_S
    assert next_sample_s(0, 256 * MIB, grows=True) == next_sample_s(0, 256 * MIB)


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
