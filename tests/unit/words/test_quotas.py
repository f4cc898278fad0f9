"""What is said of quotas: short, whole, and in the order in which one needs it."""

import pytest

from jobpool.cli.jobs.records import wait_object
from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Quota
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.store.records.quotas import QuotaWait
from jobpool.words.quotas import (
    named,
    numbers_words,
    opens_words,
    wait_words,
    window_words,
)

NOW_MS = 1_800_000_000_000
FULL = QuotaWait(
    quota="stripe", value="", used=2, cap=2, holders=(3, 4), why="2 of 2 in use"
)


def test_a_full_quota_names_the_jobs_that_have_its_permits():
    """Those are what one looks at next."""
    assert wait_words(FULL, NOW_MS) == "stripe: 2 of 2 in use; held by jobs 3, 4"


def test_of_many_holders_ten_are_named_and_the_others_counted():
    """A cap may be large; the line stays one."""
    wait = QuotaWait(
        quota="stripe", value="", used=30, cap=30, holders=tuple(range(10)), why="full"
    )
    assert wait_words(wait, NOW_MS).endswith("6, 7, 8, 9 and 20 more")


def test_a_rate_says_when_there_is_a_permit():
    """Relative, since that is what one waits for: not who has had its permits."""
    wait = QuotaWait(
        quota="vendor",
        value="17",
        used=2,
        cap=None,
        holders=(3, 4),
        why="its rate is used up",
        opens_at_ms=NOW_MS + 28_000,
    )
    expected = "vendor for 17: its rate is used up; next permit in 28s"
    assert wait_words(wait, NOW_MS) == expected


def test_what_opens_late_has_its_time_as_well():
    """Somebody may have to be told."""
    assert opens_words(NOW_MS + 120_000, NOW_MS) == (
        "next permit in 2m00s, at 2027-01-15T08:02:00.000Z"
    )
    assert opens_words(NOW_MS - 1, NOW_MS) == "next permit now"
    assert not opens_words(None, NOW_MS)


@pytest.mark.parametrize(
    ("quota", "value", "said"),
    [
        ("stripe", "", "quota stripe"),
        ("vendor", "17", "quota vendor for 17"),
        ("tenant", "acme", "the rule of tenant acme"),
        ("kind:shop.charge", "", "the own cap of kind shop.charge"),
        ("retries", "", "the retry budget of the fleet"),
        ("retries:kind:shop.a:b", "", "the retry budget of kind shop.a:b"),
        ("retries:quota:vendor", "17", "the retry budget of quota vendor for 17"),
    ],
)
def test_a_bucket_has_the_name_that_people_know_it_by(quota, value, said):
    """A kind's own cap and a tenant's rule are no quotas that anybody has named."""
    assert named(quota, value) == said


def test_numbers_say_the_burst_that_is_in_force():
    """Also if nobody has given one: a second's permits."""
    quota = Quota(name="stripe", rate=parse_rate("100/m"), concurrency=8)
    assert numbers_words(quota) == "8 at once, 100/m with burst 2"
    assert not numbers_words(Quota(name="stripe"))
    guarded = Quota(name="a", breaker=BreakerRule(), retry_budget=RetryBudget())
    assert numbers_words(guarded) == (
        "breaker at 50 % of 20 requests in 1m00s for 30s, retries 20 % of first "
        "attempts, at least 1/s"
    )


@pytest.mark.parametrize(
    ("rate", "burst", "said"),
    [
        ("10/s", 20, "at most 30 within any second, 620 within any minute"),
        ("100/m", None, "at most 102 within any minute, 6,002 within any hour"),
        ("5/h", None, "at most 6 within any hour, 121 within any day"),
        ("1000/d", None, "at most 42 within any hour, 1,001 within any day"),
    ],
)
def test_what_a_rate_allows_is_worked_out(rate, burst, said):
    """Rate x time + burst, as the manual has it, in spans that the rate is about."""
    quota = Quota(name="stripe", rate=parse_rate(rate), burst=burst)
    assert window_words(quota) == said
    assert not window_words(Quota(name="stripe", concurrency=8))


def test_programs_get_all_of_it():
    """With times as texts."""
    assert wait_object(FULL) == {
        "quota": "stripe",
        "value": "",
        "why": "2 of 2 in use",
        "used": 2,
        "concurrency": 2,
        "held_by": [3, 4],
        "opens_at": None,
    }
