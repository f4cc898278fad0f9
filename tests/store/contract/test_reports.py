"""What supervisors report of themselves, in every store."""

from jobpool.core.rules.run_report import (
    HostReport,
    KindReport,
    PoolReport,
    RunReport,
    StoreReport,
)
from support.store.quotas import KIND, OTHER, enqueue, publish, quota
from support.store.storing import begin_run, lease, new_job

REPORT = RunReport(
    pools={"cpu": PoolReport(size=4, busy=4, wanted=8, why="at its most", holds="")},
    kinds={"shop.charge": KindReport(ends_per_s=12.5, timeouts=3, holds="crashes")},
    host=HostReport(cpu_busy=0.9, memory_pressure=1.5, available_bytes=2**33),
    store=StoreReport(commit_p50_ms=1.5, lock_waits=2),
)


def test_the_newest_report_of_each_open_run_is_kept(store, clock):
    """With the time by the store's clock; it ends with its run."""
    first, second = begin_run(store, "first"), begin_run(store, "second")
    assert store.run_reports() == []
    store.put_report(second, RunReport())
    at_ms = clock.utc_ms()
    clock.advance(5)
    store.put_report(first, RunReport())
    store.put_report(first, REPORT)
    one, other = store.run_reports()
    assert (one.run_id, one.report) == (first, REPORT)
    assert one.at_ms == at_ms + 5000
    assert (other.run_id, other.at_ms, other.report) == (second, at_ms, RunReport())
    store.end_run(first)
    assert [row.run_id for row in store.run_reports()] == [second]


def test_the_oldest_due_job_is_told_of_those_that_nothing_holds_back(store, clock):
    """Whatever its priority; one that waits for a quota is not due."""
    publish(store, quota(concurrency=1), needs={KIND: ["stripe"], OTHER: []})
    kinds = {"cpu": [KIND, OTHER]}
    assert store.oldest_due(kinds) == {"cpu": 0.0}
    enqueue(store, 2)
    lease(store)
    clock.advance(30)
    store.enqueue([new_job(OTHER)])
    clock.advance(5)
    store.enqueue([new_job(OTHER, priority=9)])
    clock.advance(2)
    lease(store, kinds={"cpu": [KIND]})
    assert store.oldest_due(kinds) == {"cpu": 7.0}
    assert store.oldest_due({"cpu": [KIND], "io": []}) == {"cpu": 0.0, "io": 0.0}


def test_a_store_tells_of_its_load_what_it_can(store):
    """A server tells how many of its connections are in use."""
    told = store.load()
    assert told.commit_p50_ms is None
    if told.connections is not None:
        assert 1 <= told.connections <= told.connections_max
        assert told.lock_waits == 0


def test_what_jobs_wait_for_is_sampled_by_one_for_all(store, clock):
    """By kind and cause; nothing waits: nothing is written."""
    publish(
        store,
        quota(concurrency=1),
        needs={KIND: ["stripe"], OTHER: []},
    )
    assert not store.sample_waits(10.0)
    enqueue(store, 4)
    store.enqueue([new_job(OTHER)] * 2)
    store.enqueue([new_job("nobody.knows", "io")])
    lease(store, kinds={"cpu": [KIND]})
    assert store.sample_waits(10.0)
    assert not store.sample_waits(10.0), "somebody has done that"
    found = {(row.kind, row.pool, row.cause): row.job_s for row in store.waits(3600)}
    assert found == {
        (KIND, "cpu", "quota"): 30.0,
        (OTHER, "cpu", "slots"): 20.0,
        ("nobody.knows", "io", "unknown kind"): 10.0,
    }
    clock.advance(10)
    store.put_report(
        "run-1", RunReport(pools={"cpu": PoolReport(size=1, holds="memory")})
    )
    store.pause(quota="stripe")
    assert store.sample_waits(10.0)
    found = {(row.kind, row.cause): row.job_s for row in store.waits(3600)}
    assert found[OTHER, "memory"] == found[OTHER, "slots"] == 20.0
    assert found[KIND, "pause"] == 30.0
    assert [row.job_s for row in store.waits(3600)] == sorted(found.values())[::-1]
    clock.advance(7200)
    assert store.waits(3600) == []
    clock.advance(86_400)
    assert store.sample_waits(10.0)
    assert {row.job_s for row in store.waits(200_000)} <= {30.0, 20.0, 10.0}
