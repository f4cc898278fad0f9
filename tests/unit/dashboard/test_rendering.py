"""Numbers as people write them."""

import pytest

from jobpool.dashboard.rendering import NOTHING, duration, rate


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, NOTHING),
        (0.5, "500 ms"),
        (30, "30 s"),
        (60, "1 m"),
        (90, "1 m 30 s"),
        (1800, "30 m"),
        (3600, "1 h"),
        (3900, "1 h 05 m"),
    ],
)
def test_a_duration_has_no_part_that_is_nothing(seconds, said):
    assert duration(seconds).replace("\N{NO-BREAK SPACE}", " ") == said


@pytest.mark.parametrize(
    ("per_s", "said"),
    [
        (0, NOTHING),
        (None, NOTHING),
        (1234.6, "1,235/s"),
        (1, "1/s"),
        (0.1, "6/m"),
        (1 / 600, "6/h"),
        (1 / 86400, "0.04/h"),
    ],
)
def test_a_rate_is_said_in_the_unit_that_makes_it_a_number(per_s, said):
    assert rate(per_s) == said
