"""Reads for whoever looks on while jobs run: leases, the last ends, why others wait."""

from jobpool.core.jobs.job import Evidence, Progress
from jobpool.core.jobs.outcome import Outcome
from support.store.storing import (
    begin_run,
    ended,
    kind_record,
    lease,
    lease_one,
    new_job,
    started,
    succeeded,
)


def test_leased_jobs_are_read_longest_first(store, clock):
    """With memory and progress as last written; those that have not begun come last."""
    store.enqueue([new_job()] * 4)
    first, second, third = lease(store, limit=3)
    store.begin_attempts([started(second, "cpu/1")])
    clock.advance(5)
    store.begin_attempts([started(first, "cpu/0")])
    store.record([Progress(first.id, first.token, b"0.5", None, 7 * 2**20)])
    found = store.leased()
    assert [job.id for job in found] == [second.id, first.id, third.id]
    assert [job.slot for job in found] == ["cpu/1", "cpu/0", None]
    assert found[1].rss_bytes == 7 * 2**20
    assert found[1].progress == b"0.5"
    assert found == [store.get(job.id) for job in found]
    assert [job.id for job in store.leased(limit=1)] == [second.id]
    store.settle([succeeded(one) for one in (first, second, third)])
    assert store.leased() == []


def test_the_last_ends_are_those_that_did_not_succeed(store, clock):
    """The latest first, each with what its job is now."""
    store.enqueue([new_job(), new_job("shop.fetch", "io"), new_job()])
    store.settle(
        [ended(lease_one(store), give_up=True, evidence=Evidence(reason="gone"))]
    )
    clock.advance(1)
    store.settle([ended(lease_one(store, pool="io"), Outcome.OUT_OF_MEMORY)])
    store.settle([succeeded(lease_one(store))])
    last, before = store.ends()
    assert (last.kind, last.pool, last.outcome) == (
        "shop.fetch",
        "io",
        Outcome.OUT_OF_MEMORY.value,
    )
    assert (last.state, last.tries, last.attempt) == ("pending", 1, 1)
    assert (before.kind, before.state) == ("shop.thumbnail", "dead")
    assert last.finished_at_ms - before.finished_at_ms == 1000
    (attempt,) = store.attempts(before.job_id)
    assert before.reason == attempt.reason
    assert "gone" in before.reason
    assert store.ends(limit=1) == [last]


def test_what_has_ended_is_counted_by_minute(store, clock):
    """Jobs that have succeeded, and attempts that have not; empty minutes are left out.

    A minute counts whole, also if only its end is asked for.
    """
    store.enqueue([new_job()] * 4)
    store.settle([succeeded(lease_one(store)), ended(lease_one(store))])
    began_ms = store.position().now_ms
    clock.advance(180)
    store.settle([ended(lease_one(store), give_up=True)])
    store.settle([succeeded(lease_one(store))])
    first, last = began_ms // 60_000, store.position().now_ms // 60_000
    found = [(row.minute, row.succeeded, row.failed) for row in store.minutes(0)]
    assert found == [(first, 1, 1), (last, 1, 1)]
    assert [row.minute for row in store.minutes(began_ms)] == [first, last]
    assert [row.minute for row in store.minutes((first + 1) * 60_000)] == [last]
    assert store.minutes((last + 1) * 60_000) == []


def test_what_due_jobs_wait_for_now_is_counted_in_jobs(store):
    """By kind, pool and cause; nothing is written for it."""
    begin_run(store, "run-2", [kind_record()])
    store.enqueue([new_job()] * 3)
    store.enqueue([new_job("nobody.knows", "io")])
    store.pause(pool="cpu")
    found = {tuple(row) for row in store.causes(store.waiting())}
    assert found == {
        ("shop.thumbnail", "cpu", "pause", 3.0),
        ("nobody.knows", "io", "unknown kind", 1.0),
    }
    store.resume(pool="cpu")
    assert ("shop.thumbnail", "cpu", "slots", 3.0) in store.causes(store.waiting())
    assert store.waits(3600) == []
    assert store.causes([]) == []
