"""The times of cron expressions when clocks change, as Debian's cron has them."""

from datetime import UTC, datetime
from itertools import islice

import pytest

from jobpool.core.rules.schedules.rule import Rule, between, check_rule


def ms(text):
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def ticks(cron, tz, after, count):
    """Return the first ticks after a moment in UTC, as texts in UTC."""
    rule = check_rule(Rule(cron=cron, tz=tz))
    found = islice(between(rule, ms(after), ms("2100-01-01")), count)
    return [f"{datetime.fromtimestamp(at / 1000, UTC):%m-%d %H:%M}" for at in found]


@pytest.mark.parametrize(
    ("cron", "tz", "after", "expected"),
    [
        # A time that is left out: at the change of the clocks.
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00",
            ["03-08 07:00", "03-09 06:30"],
        ),
        # A time that comes twice: the first one.
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00",
            ["11-01 05:30", "11-02 06:30"],
        ),
        # A star in the hour: whatever clocks show, twice if they show it twice…
        (
            "0 * * * *",
            "America/New_York",
            "2026-11-01T04:30",
            ["11-01 05:00", "11-01 06:00", "11-01 07:00"],
        ),
        # …and not at all if they do not.
        (
            "0 */2 * * *",
            "America/New_York",
            "2026-03-08T04:00",
            ["03-08 05:00", "03-08 08:00", "03-08 10:00"],
        ),
        # Clocks are set by half an hour: the walk does not get out of step.
        (
            "0 */2 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T12:00",
            ["04-04 13:00", "04-04 15:30", "04-04 17:30"],
        ),
        # Clocks are set at midnight: there is none on that day.
        (
            "*/30 0 * * *",
            "Africa/Cairo",
            "2026-04-22T21:00",
            ["04-22 22:00", "04-22 22:30", "04-24 21:00"],
        ),
    ],
)
def test_changes_of_the_clocks(cron, tz, after, expected):
    assert ticks(cron, tz, after, len(expected)) == expected
