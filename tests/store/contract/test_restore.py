"""A store that was restored from a backup, and one that went back under its user."""

from contextlib import nullcontext

import pytest

import jobpool.store.operations.runs
import jobpool.store.postgres.store
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import StoreRefused, StoreWentBack
from jobpool.store.contract.watermark import Watermark
from jobpool.store.records.reading import UnfinishedRow
from support.store.flows import step, store_flow
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    kind_record,
    lease,
    lease_one,
    new_job,
    succeeded,
)


@pytest.fixture
def known(store):
    mark = Watermark("run-1")
    store.confirm(mark)
    return mark


def test_a_position_is_how_far_the_store_has_come(store, clock):
    """Its newest time is of the past: a job that waits for tomorrow does not count."""
    begun_ms = clock.now_ms
    first = store.position()
    assert store.clock_ms() == first.now_ms == clock.utc_ms()
    assert (first.now_ms, first.newest_ms, first.last_id) == (begun_ms, begun_ms, 0)
    clock.advance(1)
    store.enqueue([new_job()] * 3 + [new_job(delay_ms=10**8)])
    assert store.position().newest_ms == begun_ms + 1000
    clock.advance(1)
    (only,) = store.lease("run-1", {"cpu": 1}, KINDS).leases
    leased = store.position()
    assert (leased.newest_ms, leased.last_id, leased.newest_id) == (
        begun_ms + 2000,
        4,
        4,
    )
    assert leased.tokens > first.tokens
    clock.advance(1)
    store.settle([ended(only)])
    assert store.position().newest_ms == begun_ms + 3000
    clock.advance(1)
    store.cancel([4])
    assert store.position().newest_ms == begun_ms + 4000


def test_tokens_and_ids_go_on_above_what_is_said(store):
    """And are never lowered; each call counts as a restore."""
    store.enqueue([new_job()] * 4)
    (first,) = lease(store, limit=1)
    before = store.position()
    store.begin_anew(tokens=before.tokens + 1000, last_id=before.last_id + 1000)
    store.begin_anew(tokens=0, last_id=0)
    after = store.position()
    assert (after.tokens, after.last_id) == (before.tokens + 1000, 1004)
    assert after.restores == before.restores + 2
    (later,) = lease(store, limit=1)
    assert later.token - first.token >= 1000
    assert [one.id for one in store.enqueue([new_job()] * 2)] == [1005, 1006]
    assert store.scrub(None) is None
    assert store.damaged_rows() == ()


def test_ids_go_on_in_a_store_that_never_had_a_job(store):
    """A backup may be from before the first."""
    store.begin_anew(tokens=5, last_id=10**9)
    assert [one.id for one in store.enqueue([new_job()] * 3)] == [
        10**9 + 1,
        10**9 + 2,
        10**9 + 3,
    ]


def test_no_ref_of_a_flow_leads_to_another_one_after_a_restore(store):
    """Flows after the backup are gone; whoever has the ref of one finds none."""
    store_flow(store, step(0))
    store.begin_anew(tokens=0, last_id=1000)
    assert store_flow(store, step(0)) == 1001
    store.begin_anew(tokens=0, last_id=0)
    assert store_flow(store, step(0)) == 1002


def test_unfinished_jobs_are_counted_by_kind(store):
    """Leased and due ones may have run since a backup; those for later have not."""
    store.enqueue([new_job()] * 3 + [new_job(delay_ms=1000)] * 2)
    store.enqueue([new_job("shop.fetch", "io"), new_job("shop.fetch", "io", key="k")])
    ends, _ = lease(store, limit=2)
    store.settle([succeeded(ends)])
    assert store.unfinished() == [
        UnfinishedRow(kind="shop.fetch", pool="io", due=2, later=0),
        UnfinishedRow(kind="shop.thumbnail", pool="cpu", due=2, later=2),
    ]


def test_a_paused_store_leases_nothing(store, clock):
    """Of no pool and kind, and no suspect; it says so wherever it is asked."""
    store.enqueue([new_job()] * 2 + [new_job(delay_ms=1000), new_job(expires_in_ms=1)])
    (held,) = lease(store, limit=1)
    store.settle([ended(held, Outcome.LOST, suspect=True)])
    assert store.pause(whole_store=True, note="restored")
    assert not store.pause(whole_store=True)
    clock.advance(5)
    batch = store.lease("run-1", {"cpu": 5}, KINDS)
    assert (batch.leases, batch.next_due_in_s) == ((), None)
    assert store.due(KINDS, 10) == {"cpu": 0, "io": 0}
    assert {row.paused for row in store.waiting()} == {True}
    (pause,) = store.pauses()
    assert (pause.what, pause.name, pause.note) == ("store", "", "restored")
    assert store.resume(whole_store=True)
    assert not store.resume(whole_store=True)
    assert [one.suspect for one in lease(store)] == [False, False, True]


def test_a_pause_of_the_store_can_end_by_itself(store, clock):
    """As one of a pool."""
    store.enqueue([new_job()])
    store.pause(whole_store=True, for_s=60)
    clock.advance(59)
    assert lease(store) == ()
    clock.advance(1.001)
    assert len(lease(store)) == 1


def test_kinds_that_run_at_most_once_are_known_from_any_supervisor(store):
    """By all of their names: an older version may have allowed reruns."""
    begin_run(store, "run-2", [kind_record(at_most_once=("shop.thumbnail", "old"))])
    begin_run(store, "run-3", [kind_record(), kind_record("shop.resize")])
    assert {one.kind: one.at_most_once for one in store.kinds()} == {
        "shop.resize": (),
        "shop.thumbnail": ("shop.thumbnail", "old"),
    }


# -- a store that went back ----------------------------------------------------------


def test_a_renewal_is_compared_and_remembered(store, clock, known):
    """What a run wrote last is what it must find."""
    for _ in range(3):
        clock.advance(1)
        store.renew("run-1", 60.0, known=known)
    assert known.renewals == 3
    store.confirm(known)


def test_a_clock_that_is_set_back_is_not_a_store_that_went_back(store, clock, known):
    """Not even if the answer to a renewal was lost, and the run began again."""
    store.renew("run-1", 60.0, known=known)
    clock.advance(-3600)
    begin_run(store)  # as a reload does
    store.renew("run-1", 60.0)  # no answer: it learned nothing
    store.confirm(known)
    store.renew("run-1", 60.0, known=known)
    store.confirm(known)
    assert known.renewals == 3


@pytest.mark.parametrize(
    "missing", [{"renewals": 10**6}, {"token": 2**62}, {"restores": 7}]
)
def test_a_store_that_went_back_is_neither_renewed_nor_confirmed(
    store, clock, known, missing
):
    """And nothing is changed there: whoever put the backup back sees it as it was."""
    (before,) = store.open_runs()
    for name, value in missing.items():
        setattr(known, name, value)
    clock.advance(1)
    for call in (
        lambda: store.renew("run-1", 90.0, known=known),
        lambda: store.renew("run-1", 90.0, anew=True, known=known),
        lambda: store.confirm(known),
    ):
        with pytest.raises(StoreWentBack, match=r"went back in time.*restored"):
            call()
    assert store.open_runs() == [before]


def test_a_restore_is_noticed_by_whoever_worked_before_it(store, known):
    """Even if nothing is missing."""
    store.begin_anew(tokens=0, last_id=0)
    with pytest.raises(StoreWentBack, match="was restored from a backup"):
        store.renew("run-1", 60.0, known=known)


def test_a_restore_is_noticed_by_a_run_that_it_has_ended(store, known):
    """That is told apart from a run that another one took for dead."""
    store.begin_anew(tokens=0, last_id=0)
    store.end_run("run-1")
    with pytest.raises(StoreWentBack, match="was restored from a backup"):
        store.renew("run-1", 60.0, known=known)


def test_a_run_that_the_store_does_not_know_went_back(store):
    """With what is known of it or without."""
    for mark in (None, Watermark("run-9")):
        with pytest.raises(StoreWentBack, match="run-9"):
            store.renew("run-9", 60.0, known=mark)
    with pytest.raises(StoreRefused, match="does not know run run-9"):
        store.lease("run-9", {"cpu": 1}, KINDS)


def test_leases_that_were_granted_are_remembered(store, known):
    """The highest of them; a store that has given less has lost some."""
    store.enqueue([new_job()] * 3)
    known.granted(lease(store, limit=2))
    last = lease_one(store)
    known.granted([last])
    known.granted([])
    assert known.token == last.token
    store.renew("run-1", 60.0, known=known)


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_leases_of_another_thread_during_a_renewal_are_not_missed(
    store, known, monkeypatch, is_in_transaction
):
    """They were granted after the store had read how far it had come."""
    read = jobpool.store.operations.runs.position_from

    def read_late(*row):
        known.token += 1 << 40
        known.renewals += 10**6
        return read(*row)

    for module in (jobpool.store.operations.runs, jobpool.store.postgres.store):
        monkeypatch.setattr(module, "position_from", read_late)
    with store.transaction() if is_in_transaction else nullcontext():
        store.renew("run-1", 60.0, known=known)
