"""How often memory is sampled, and how loose the backstop is."""

import pytest

from jobpool.sandbox.metering.sampling import (
    SAMPLE_MAX_S,
    SAMPLE_MIN_S,
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
