"""A moved queue keeps its quotas: what was set, and what its jobs count by."""

from contextlib import closing

import pytest

from jobpool.core.rules.quotas.rules import Override
from jobpool.store.move import move
from jobpool.store.opening import open_store
from support.postgres.server import server
from support.store.quotas import enqueue, ids, publish, quota, tenant
from support.store.storing import lease


@pytest.fixture
def target_url():
    url = server().store_url()
    yield url
    server().drop(url)


def test_a_move_takes_along_what_was_set_and_what_jobs_count_by(
    database_path, target_url, clock
):
    """What is published comes with the next run; lanes are made anew."""
    source_url = f"sqlite:///{database_path}"
    with closing(open_store(source_url, clock=clock)) as source:
        publish(source, quota(concurrency=9, per="args.vendor"))
        source.set_quota(Override(quota="stripe", concurrency=1, who="ann"))
        source.set_tenant(tenant("acme", concurrency=3), who="ann")
        made = enqueue(source, 2, values={"vendor": "a"})
        made += enqueue(source, 2, values={"vendor": "b"})
        source.end_run("run-1")
    move.move(source_url, target_url)
    with closing(open_store(target_url)) as target:
        publish(target, quota(concurrency=9, per="args.vendor"), run_id="run-2")
        assert set(ids(lease(target, "run-2"))) == {made[0], made[2]}
        assert {row.value for row in target.buckets("stripe")} == {"a", "b"}
        (row,) = target.quotas()
        assert (row.override.concurrency, row.override.who) == (1, "ann")
        assert [row.name for row in target.tenants()] == ["acme"]
