"""A quota's line in the list, and what is said of one."""

import pytest

from jobpool.cli.admin.quotas.records import (
    COLUMNS,
    TENANT_COLUMNS,
    bucket_cells,
    cells,
    quota_object,
    tenant_cells,
)
from jobpool.core.rules.quotas.definition import Quota, Tenant
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.core.rules.quotas.rules import Override
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import BucketRow, QuotaRow, TenantRow
from jobpool.words.quotas import facts

NOW_MS = 1_800_000_000_000
STRIPE = Quota(name="stripe", rate=parse_rate("10/s"), burst=20, concurrency=8)
PAUSE = PauseRow(
    what="quota",
    name="stripe",
    since_ms=NOW_MS - 1000,
    until_ms=NOW_MS + 60_000,
    who="ann",
    note="vendor down",
)


def row(quota=STRIPE, **more):
    name = "stripe" if quota is None else quota.name
    return QuotaRow(name=name, quota=quota, **more)


def bucket(**more):
    return BucketRow(**{"quota": "stripe", "value": "", **more})


def line(found):
    """Return a quota's line by column."""
    return dict(zip(COLUMNS, cells(found, NOW_MS), strict=True))


def test_a_line_has_what_is_used_free_and_waiting():
    """Free is what the cap and the rate both allow."""
    one = bucket(used=5, cap=8, free=2, waiting=7)
    found = line(row(used=5, waiting=7, blocked=1, bucket=one))
    assert (found["CAP"], found["RATE"], found["BURST"]) == (8, "10/s", 20)
    assert (found["USED"], found["FREE"], found["WAITING"]) == (5, 2, 7)
    assert (found["FROM"], found["STATE"]) == ("code", "open")


def test_a_quota_that_nothing_has_used_is_free():
    """It has no bucket yet."""
    found = line(row())
    assert (found["USED"], found["FREE"], found["STATE"]) == (0, 8, "open")


def test_a_closed_quota_says_until_when_before_it_says_why():
    """What is cut on a narrow terminal is the reason, not the time."""
    one = bucket(cap=8, reason="its service said wait", opens_at_ms=NOW_MS + 28_000)
    assert line(row(bucket=one))["STATE"] == "next permit in 28s: its service said wait"


def test_a_quota_of_many_buckets_counts_those_that_are_closed():
    """Which they are is in its own view."""
    fair = Quota(name="fair-use", concurrency=5, per="tenant")
    found = line(row(fair, used=9, blocked=2))
    assert (found["PER"], found["FREE"], found["STATE"]) == (
        *("tenant", None),
        "2 buckets closed",
    )


def test_what_only_a_host_counts_has_no_figures_here():
    """The store knows nothing of it: a 0 would be a lie."""
    gpu = Quota(name="gpu", concurrency=2, host_only=True)
    found = line(row(gpu))
    assert (found["CAP"], found["USED"], found["FREE"]) == (2, None, None)
    assert found["STATE"] == "each host counts its own"


def test_a_pause_says_when_it_ends_by_whom_and_why():
    """It outweighs all else that holds jobs back."""
    expected = "PAUSED, ends in 1m00s, by ann: vendor down"
    assert line(row(paused=PAUSE, bucket=bucket(reason="full")))["STATE"] == expected


def test_a_quota_that_nobody_publishes_says_so():
    """Numbers that somebody has set outlast the code that they were for."""
    override = Override(quota="stripe", concurrency=3, who="ann")
    found = line(row(None, override=override))
    assert (found["FROM"], found["STATE"]) == ("set", "nobody publishes it")


def test_numbers_that_were_set_for_a_while_say_how_long_they_hold():
    """Then those of the code are back."""
    override = Override(quota="stripe", concurrency=3, until_ms=NOW_MS + 7_200_000)
    assert line(row(override=override))["FROM"] == "set, ends in 2h00m"


def test_a_quota_is_told_with_its_numbers_and_who_says_them():
    """A stranger sees what it does, and how to undo what was set."""
    override = Override(
        quota="stripe", rate=parse_rate("5/s"), until_ms=NOW_MS, who="ann", note="busy"
    )
    found = dict(
        facts(
            row(
                override=override,
                differing="web1 says 8, web2 says 12; the stricter number holds",
                kinds=("shop.charge", "shop.refund"),
                waiting=1,
            ),
            {"shop.charge": 2},
            NOW_MS,
        )
    )
    assert found["limits"] == "8 at once, 10/s with burst 20"
    assert found["means"] == "at most 30 within any second, 620 within any minute"
    assert found["set"].startswith("rate 5/s, by ann, until 2027-01-15T08:00:00")
    assert found["set"].endswith(": busy")
    assert found["differs"].startswith("web1 says 8, web2 says 12; ")
    assert found["kinds"] == "shop.charge (cost 2), shop.refund"
    assert found["waiting"] == "1 job"


def test_programs_get_numbers_and_times():
    """Of what was set as of what is in force."""
    override = Override(quota="stripe", rate=parse_rate("5/s"), who="ann")
    found = quota_object(row(override=override, paused=PAUSE))
    assert found["rate"] == "10/s"
    assert found["set"]["rate"] == "5/s"
    assert found["free"] == 8
    assert found["paused_by"] == "ann"


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (bucket(value="17", cap=2, used=1), "open"),
        (bucket(value="17", cap=2, used=2, reason="full"), "full"),
    ],
)
def test_a_bucket_has_its_value_and_its_state(one, state):
    """A value is what somebody looks for."""
    found = bucket_cells(one, NOW_MS)
    assert (found[0], found[-1]) == ("17", state)


def test_a_tenants_line_has_its_rule_and_who_set_it():
    """The rule for all others uses nothing itself."""
    acme = TenantRow(
        name="acme",
        tenant=Tenant(name="acme", concurrency=10),
        is_set=True,
        who="ann",
        updated_at_ms=NOW_MS - 60_000,
        used=4,
    )
    found = dict(zip(TENANT_COLUMNS, tenant_cells(acme, NOW_MS), strict=True))
    assert (found["CAP"], found["USED"]) == (10, 4)
    assert (found["FROM"], found["STATE"]) == ("set by ann 1m00s ago", "open")
    others = TenantRow(name="*", tenant=Tenant(name="*", concurrency=5))
    found = dict(zip(TENANT_COLUMNS, tenant_cells(others, NOW_MS), strict=True))
    assert (found["USED"], found["FROM"]) == (None, "configuration")
    assert found["STATE"] == "for each tenant without its own"
