"""Rules in words."""

import pytest

from jobpool.core.rules.schedules.cron import ALIASES
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.words import rule_words
from jobpool.errors import ConfigError


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(cron="0 2 * * *", tz="Europe/Berlin"), "at 02:00 every day, Europe/"),
        (Rule(cron="0 7 * * 1-5"), "at 07:00 on Monday through Friday"),
        (Rule(cron="@Hourly"), "at the start of every hour"),
        (Rule(cron="0 0 L * *"), "at 00:00 on the last day of every month"),
        (Rule(every_ms=30_000, tz="Europe/Berlin"), "every 30s"),
        (Rule(every_ms=3_600_000, from_end=True), "1h after each end"),
        (Rule(every_ms=90_061_500), "every 1d1h1m1.5s"),
    ],
)
def test_a_rule_is_said_in_words(rule, words):
    """The zone belongs to an expression; a period needs none."""
    assert rule_words(rule).startswith(words)


@pytest.mark.parametrize("name", ALIASES)
def test_every_name_has_words(name):
    assert rule_words(Rule(cron=name))


def test_a_rule_that_was_changed_by_hand_has_none():
    """The error is the one that its plan would have."""
    with pytest.raises(ConfigError, match="is not an expression"):
        rule_words(Rule(cron="0 0 tomorrow * *"))
