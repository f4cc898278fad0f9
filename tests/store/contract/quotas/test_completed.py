"""Permits of a job that its handler has completed: held until the attempt has ended."""

import time
from contextlib import closing

import pytest

from jobpool.core.config.settings import Retention
from support.site.handler_site import Site
from support.store.quotas import enqueue, publish, quota
from support.store.storing import lease, lease_one, succeeded

ENGINES = ["sqlite", "postgres"]
AT_ONCE = Retention(succeeded_s=0.0, succeeded_count=0)


@pytest.fixture
def site(new_store_url, clock):
    clock.now_ms = round(time.time() * 1000)  # as where a handler completes
    with closing(Site(new_store_url(), clock)) as site:
        publish(site.store, quota(concurrency=1))
        enqueue(site.store, 2)
        yield site


@pytest.mark.parametrize("retention", [Retention(), AT_ONCE])
def test_it_holds_its_permit_until_it_is_settled(site, clock, retention):
    """However short finished jobs are kept: its handler still works."""
    granted = lease_one(site.store)
    site.complete(granted)
    # It has ended by the real clock, which may have gone far meanwhile.
    clock.advance(2 + max(0.0, time.time() - clock.now_ms / 1000))
    site.store.prune(retention)
    assert lease(site.store) == ()
    site.store.settle([succeeded(granted)])
    assert len(lease(site.store)) == 1
    site.store.prune(AT_ONCE)
    assert site.store.get(granted.id) is None
