"""What a supervisor publishes of quotas, and what it keeps to itself."""

from __future__ import annotations

import msgspec
import pytest

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.settings import KindSettings, QuotaSettings
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending
from jobpool.core.rules.quotas.definition import Need, Quota, own_cap
from jobpool.supervisor.machine.registry import Registry
from support.machine.world import World, pool

STRIPE = Quota(name="stripe", concurrency=8, throttle_max_s=60.0)
DISK = Quota(name="disk", concurrency=2, host_only=True)


@pytest.fixture
def registry():
    """An application of three kinds, one of them in a pool that runs elsewhere."""
    handlers = (
        HandlerSpec(
            kind="pay",
            pool="cpu",
            aliases=("charge",),
            needs=(Need("stripe", 2), Need("disk")),
            concurrency=3,
        ),
        HandlerSpec(kind="scan", pool="cpu", needs=(Need("disk"),)),
        HandlerSpec(kind="mail", pool="io", concurrency=1),
    )
    report = AppReport(handlers=handlers, quotas=(STRIPE, DISK))
    settings = msgspec.structs.replace(
        World(pool("cpu")).settings,
        quotas={"disk": QuotaSettings(concurrency=1)},
        kinds={"pay": KindSettings(concurrency=2)},
    )
    return Registry(settings, report)


def test_quotas_are_published_with_kinds_own_caps_and_former_names(registry):
    """As configured, so that the store knows what a job needs, whatever its name."""
    cap, need = own_cap("pay", 2)
    quotas = {one.name: one for one in registry.published.quotas}
    assert (quotas["stripe"], quotas[cap.name]) == (STRIPE, cap)
    assert registry.published.aliases == {"charge": "pay"}
    records = {one.kind: one.needs for one in registry.records()}
    assert records == {
        "pay": (Need("stripe", 2), Need("disk"), need),
        "scan": (Need("disk"),),
    }
    assert registry.laned_kinds == ("pay",)


def test_what_one_host_counts_is_kept_here(registry):
    """Under each name of a kind."""
    disk = (Need("disk"),)
    assert registry.host_caps == {"disk": 1}
    assert registry.host_needs == {"pay": disk, "charge": disk, "scan": disk}


@pytest.mark.parametrize(
    ("quota", "said_s", "kept_s"),
    [("stripe", 30.0, 30.0), ("stripe", 90.0, 60.0), ("gone", 5000.0, 900.0)],
)
def test_a_pause_is_no_longer_than_its_quota_allows(registry, quota, said_s, kept_s):
    """One that is not known any more has the usual maximum."""
    ending = Ending(outcome=Outcome.FAILED, snooze_s=said_s, throttled=(quota, ""))
    assert registry.within_throttle_max(ending).snooze_s == kept_s
