"""Which kinds have runnable jobs in which pools: supervisors look each second."""

from jobpool.store.operations.lease import KINDS_MAX
from support.store.storing import lease, new_job


def test_pairs_are_those_of_runnable_jobs_in_the_pools(store, clock):
    """Not of jobs that are not due, run, have ended, or are in other pools."""
    store.enqueue(
        [
            new_job(kind="b", pool="cpu"),
            new_job(kind="b", pool="cpu"),
            new_job(kind="a", pool="cpu", priority=5),
            new_job(kind="a", pool="io"),
            new_job(kind="later", pool="io", delay_ms=1000),
            new_job(kind="a", pool="other"),
        ]
    )
    assert store.runnable_kinds(("io", "cpu", "none")) == [
        ("cpu", "a"),
        ("cpu", "b"),
        ("io", "a"),
    ]
    assert store.runnable_kinds(()) == []
    assert len(lease(store, pool="io", kinds={"io": ["a"]})) == 1
    clock.advance(1.0)
    assert len(lease(store, pool="cpu", kinds={"cpu": ["a"]})) == 1  # it promotes
    assert store.runnable_kinds(("io", "cpu")) == [("cpu", "b"), ("io", "later")]


def test_no_more_than_a_thousand_are_found_at_once(store):
    reached = KINDS_MAX
    store.enqueue([new_job(kind=f"k{n:04}", pool="cpu") for n in range(reached + 5)])
    found = store.runnable_kinds(("cpu",))
    assert found == [("cpu", f"k{n:04}") for n in range(reached)]
