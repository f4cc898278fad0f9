"""Times, durations and rates as operators write them."""

import pytest

from jobpool.errors import ConfigError
from jobpool.words.moments import moment_ms, rate_per_s, since_ms

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("1700000000", NOW),
        ("1700000000.5", NOW + 500),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000),
    ],
)
def test_a_time_is_iso_8601_or_unix_seconds(text, at_ms):
    """Both forms mean the same instant."""
    assert moment_ms(text, "--run-at") == at_ms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2023-11-14T22:13:20", "has no time zone; add Z"),
        ("tomorrow", "is not a moment"),
        ("nan", "is not a moment"),
        ("-5", "is not a moment"),
        ("1e300", "is not a moment"),
        ("9" * 400, "out of range"),
        ("1969-12-31T00:00:00Z", "out of range"),
        ("9999-12-31T23:59:59-12:00", "out of range"),
    ],
)
def test_invalid_times_are_refused(text, message):
    """The error names the flag, what was seen and what to write."""
    with pytest.raises(ConfigError) as caught:
        moment_ms(text, "--run-at")
    assert str(caught.value).startswith("--run-at: ")
    assert message in str(caught.value)


def test_since_is_a_duration_or_a_time():
    """--since 2h is two hours before now; never before 1970."""
    assert since_ms("2h", NOW) == NOW - 7_200_000
    assert since_ms("90y".replace("90y", "99w"), NOW) == NOW - 99 * 604_800_000
    assert since_ms("2023-11-14T22:13:20Z", NOW + 5) == NOW
    assert since_ms("36500d", NOW) == 0


@pytest.mark.parametrize(
    ("text", "rate"), [("100/s", 100), ("30/m", 0.5), ("1800/h", 0.5), ("0.5/s", 0.5)]
)
def test_a_rate_is_jobs_per_unit(text, rate):
    """100/s, 30/m and 500/h are all jobs per second in the end."""
    assert rate_per_s(text) == rate


@pytest.mark.parametrize("text", ["", "100", "0/s", "-1/s", "1/d", "nan/s", "/s"])
def test_wrong_rates_are_refused(text):
    """A rate of zero would never end."""
    with pytest.raises(ConfigError, match="--rate"):
        rate_per_s(text)
