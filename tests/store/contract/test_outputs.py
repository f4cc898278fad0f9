"""What successful attempts have written: kept if asked for, the newest, up to a cap."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.store.records.jobs import KeptOutput, Receipt
from support.store.storing import ended, lease, lease_one, new_job, succeeded

NOTHING_KEPT = Retention(succeeded_s=0.0)
MIB = 2**20


def said(granted, output, **more):
    """Return the end of a success whose output is to be kept."""
    end = succeeded(granted, output=output, **more)
    return msgspec.structs.replace(end, keeps_output=True)


def run_job(store, output):
    """Run a job that writes something, and return its id."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    assert store.settle([said(granted, output)]) == [Receipt.ACCEPTED]
    return granted.id


def outputs(store, ids):
    return [store.kept_output(job_id).output for job_id in ids]


@pytest.fixture
def granted(store):
    store.enqueue([new_job()])
    return lease_one(store)


def test_the_output_of_a_success_is_kept_if_asked_for(store, granted, clock):
    """With the attempt that wrote it, and when it ended."""
    clock.advance(3)
    assert store.settle([said(granted, "42 pages\n")]) == [Receipt.ACCEPTED]
    kept = KeptOutput(1, clock.utc_ms(), "42 pages\n", None)
    assert store.kept_output(granted.id) == kept
    assert store.get(granted.id).result == b'{"ok":1}'
    assert store.output(granted.id) is None  # It does not run any more.


def test_otherwise_it_is_not(store, granted):
    """Nor is there anything to read of a job that does not exist."""
    store.settle([succeeded(granted, output="42 pages\n")])
    assert store.kept_output(granted.id) is None
    assert store.kept_output(granted.id + 1) is None


def test_the_output_of_a_failure_is_its_attempts(store, granted):
    """Whether it would be kept of a success or not; it is not there twice."""
    failure = ended(granted)
    evidence = msgspec.structs.replace(failure.evidence, output="no such page")
    store.settle(
        [msgspec.structs.replace(failure, evidence=evidence, keeps_output=True)]
    )
    assert [one.output for one in store.attempts(granted.id)] == ["no such page"]
    assert store.kept_output(granted.id) is None


def test_a_stale_end_keeps_no_output(store, granted):
    """The token's holder alone says what was written."""
    stale = msgspec.structs.replace(said(granted, "mine"), token=granted.token + 1)
    assert store.settle([stale]) == [Receipt.STALE]
    assert store.kept_output(granted.id) is None
    assert store.settle([said(granted, "yes")]) == [Receipt.ACCEPTED]
    assert store.settle([said(granted, "again")]) == [Receipt.STALE]
    assert outputs(store, [granted.id]) == ["yes"]


def test_many_ends_in_one_call_each_keep_their_own(store):
    """Along with those that keep none, and with texts that no database can hold."""
    store.enqueue([new_job()] * 6)
    leases = lease(store)
    texts = ["a", None, "b\0\ud800", "c" * 70_000, None, "ü"]
    ends = [
        succeeded(one) if text is None else said(one, text)
        for one, text in zip(leases, texts, strict=True)
    ]
    assert store.settle(ends) == [Receipt.ACCEPTED] * 6
    found = [store.kept_output(one.id) for one in leases]
    assert [kept and kept.output for kept in found] == [
        *("a", None, "b\ufffd?", "c" * 70_000, None, "ü"),
    ]


def test_the_oldest_are_dropped_once_newer_ones_take_up_the_room(store, clock):
    """In whole KiB; it stays known when, and nothing is dropped twice."""
    ids = [run_job(store, text * 1024) for text in "abcd"]
    assert store.drop_outputs(4 * 1024) == 0
    clock.advance(60)
    assert store.drop_outputs(2 * 1024) == 2
    assert outputs(store, ids) == [None, None, "c" * 1024, "d" * 1024]
    assert store.kept_output(ids[1]).dropped_at_ms == clock.utc_ms()
    assert store.kept_output(ids[2]).dropped_at_ms is None
    clock.advance(60)
    assert store.drop_outputs(2 * 1024) == 0
    assert store.kept_output(ids[1]).dropped_at_ms == clock.utc_ms() - 60_000


@pytest.mark.parametrize(("output", "kib"), [("x", 1), ("x" * 1025, 2), ("ü" * 600, 2)])
def test_an_output_takes_up_whole_kib(store, output, kib):
    """By its bytes, so that many short ones are bounded as well."""
    first = run_job(store, "first")
    run_job(store, output)
    assert store.drop_outputs(kib * 1024 + 1) == 0
    assert store.drop_outputs(kib * 1024) == 1
    assert outputs(store, [first]) == [None]


def test_a_drop_is_bounded(store):
    """The oldest first, whatever their jobs' ids."""
    store.enqueue([new_job()] * 5)
    leases = lease(store)
    for one in reversed(leases):
        store.settle([said(one, str(one.id))])
    ids = [one.id for one in leases]
    assert [store.drop_outputs(0, limit=n) for n in (0, 2)] == [0, 2]
    assert outputs(store, ids) == [*map(str, ids[:3]), None, None]
    assert [store.drop_outputs(0, limit=2) for _ in range(2)] == [2, 1]


def test_a_deleted_job_leaves_no_output_behind(store, clock):
    """Nor does one that was dropped; what comes later has its own."""
    first, second = run_job(store, "first"), run_job(store, "second")
    store.drop_outputs(1024)
    clock.advance(1)
    assert store.prune(NOTHING_KEPT) == 2
    assert store.kept_output(first) is store.kept_output(second) is None
    third = run_job(store, "third")
    assert store.drop_outputs(MIB) == 0
    assert outputs(store, [third]) == ["third"]


def test_an_output_is_kept_with_its_end_or_not_at_all(store, granted):
    """They are one transaction."""

    def settle_and_fail():
        with store.transaction():
            store.settle([said(granted, "gone")])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        settle_and_fail()
    assert store.kept_output(granted.id) is None
    assert store.settle([said(granted, "here")]) == [Receipt.ACCEPTED]
    assert outputs(store, [granted.id]) == ["here"]
