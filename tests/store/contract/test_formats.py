"""Formats: code that does not know a feature neither leases nor holds what uses it."""

from contextlib import suppress

import pytest

from jobpool.core.formats import FORMAT, TOO_OLD
from jobpool.errors import FeatureHeldBack, StoreRefused
from jobpool.store.operations.runs import GONE_S
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.runs import Renewal
from support.store.storing import KINDS, begin_run, lease_one, new_job, succeeded

NEWER = FORMAT + 1
TTL_S = 10.0


@pytest.fixture
def store(store_factory):
    """A store in which no run has begun."""
    return store_factory()


def older_run(store, run_id="old", **facts):
    return begin_run(store, run_id, ttl_s=TTL_S, format=1, version="0.3.0", **facts)


def outdate(store, clock):
    """Let the runs of our own format miss that a newer one came into use.

    Where leases expire by time they are cut off for long enough. On one host they would
    hold the feature back until they are proven dead: it is raised by hand.
    """
    if not store.one_host:
        clock.advance(TTL_S + GONE_S + 1)
        store.require(NEWER)
    elif store.url.startswith("memory"):
        store._database.grant_format(NEWER)
    else:
        with store._database.writing() as session:
            session.run("grant_format", granted=NEWER)
    assert store.formats().least == NEWER


def test_every_store_begins_with_the_format_of_old(store):
    """Nothing is asked for until it is used: one can still go back."""
    found = store.formats()
    assert (found.least, found.wanted, found.held_back_by) == (1, 1, ())


def test_a_feature_is_granted_when_every_open_run_knows_it(store):
    """At once; and it stays so."""
    begin_run(store)
    store.require(FORMAT)
    store.require(FORMAT)
    store.require(1)
    found = store.formats()
    assert (found.least, found.wanted, found.held_back_by) == (FORMAT, FORMAT, ())


def test_an_older_run_holds_a_feature_back_and_is_named(store):
    """Version, host and process: what an operator needs to find it."""
    older_run(store, host="a", pid=17)
    with pytest.raises(
        FeatureHeldBack,
        match=r"flows wait for jobpool 0\.3\.0 on host a, pid 17: .*nothing was",
    ):
        store.require(FORMAT)
    found = store.formats()
    assert (found.least, found.wanted) == (1, FORMAT)
    assert [run.id for run in found.held_back_by] == ["old"]


def test_a_wish_is_fulfilled_when_the_last_older_run_has_ended(store):
    """By whoever looks next, without being asked for again."""
    begin_run(store)
    older_run(store, "old-1")
    older_run(store, "old-2")
    with pytest.raises(FeatureHeldBack):
        store.require(FORMAT)
    for ended in ("old-1", "old-2"):
        store.grant_format()
        assert store.formats().least == 1
        store.end_run(ended)
    store.grant_format()
    assert store.formats().least == FORMAT


def test_what_all_runs_know_is_not_held_back_by_a_newer_wish(store):
    """Each feature waits for the runs that do not know it, and for no other."""
    begin_run(store)
    with pytest.raises(FeatureHeldBack):
        store.require(NEWER)
    store.require(FORMAT)
    found = store.formats()
    assert (found.least, found.wanted) == (FORMAT, NEWER)
    assert [run.id for run in found.held_back_by] == ["run-1"]


def test_a_wish_within_a_transaction_that_fails_is_forgotten(store):
    """It is part of that transaction, as everything is."""
    with suppress(ZeroDivisionError), store.transaction():
        store.require(FORMAT)
        raise ZeroDivisionError
    assert store.formats().wanted == 1


def test_a_run_that_is_too_old_does_not_begin(store):
    """It is told what to do; nothing is published for it."""
    store.require(FORMAT)
    with pytest.raises(StoreRefused, match="upgrade jobpool here"):
        older_run(store)
    assert store.open_runs() == []
    begin_run(store)
    assert [run.format for run in store.open_runs()] == [FORMAT]


def test_an_outdated_run_gets_no_leases(store, clock):
    """It is told so by the store, in the statement that looks for jobs."""
    begin_run(store, ttl_s=TTL_S)
    store.enqueue([new_job()])
    outdate(store, clock)
    store.renew("run-1", TTL_S, anew=True)
    batch = store.lease("run-1", {"cpu": 1}, KINDS)
    assert (batch.outdated, batch.lapsed, batch.leases) == (True, False, ())
    begin_run(store, "new", format=NEWER)
    assert not store.lease("new", {"cpu": 1}, KINDS).outdated


def test_an_outdated_run_is_told_when_it_renews_and_keeps_what_it_has(store, clock):
    """What it still holds may end in good order."""
    begin_run(store, ttl_s=TTL_S)
    outdate(store, clock)
    if not store.one_host:
        assert store.renew("run-1", TTL_S) is Renewal.LAPSED
    assert store.renew("run-1", TTL_S, anew=True) is Renewal.OUTDATED
    assert store.renew("run-1", TTL_S) is Renewal.OUTDATED
    (run,) = store.open_runs()
    assert run.lease_until_ms == clock.utc_ms() + round(TTL_S * 1000)


def test_a_run_that_holds_leases_holds_back_however_late_it_is(store, clock):
    """Whoever takes them over ends that first."""
    begin_run(store, ttl_s=TTL_S)
    store.enqueue([new_job()])
    granted = lease_one(store)
    clock.advance(60 + GONE_S + 1)
    with pytest.raises(FeatureHeldBack):
        store.require(NEWER)
    store.settle([succeeded(granted)])
    assert store.get(granted.id).state == "succeeded"
    store.grant_format()
    assert store.formats().least == (FORMAT if store.one_host else NEWER)


def test_where_leases_expire_a_run_that_was_gone_for_a_minute_does_not_count(
    store, clock
):
    """Its host may be gone for ever. Code from before formats finds its run ended."""
    if store.one_host:
        older_run(store)
        clock.advance(TTL_S + GONE_S + 1)
        with pytest.raises(FeatureHeldBack):
            store.require(FORMAT)
        return
    older_run(store)
    clock.advance(TTL_S + GONE_S)
    with pytest.raises(FeatureHeldBack):
        store.require(FORMAT)
    clock.advance(1)
    store.require(FORMAT)
    assert store.renew("old", TTL_S, anew=True) is Renewal.OUTDATED


def test_ends_are_accepted_whatever_the_format(store):
    """Of an attempt that was leased before: its end must not be lost."""
    begin_run(store)
    store.enqueue([new_job()])
    granted = lease_one(store)
    with pytest.raises(FeatureHeldBack):
        store.require(NEWER)
    assert store.settle([succeeded(granted)]) == [Receipt.ACCEPTED]


def test_a_run_that_is_too_old_says_the_same_everywhere():
    """One sentence, with the number that this code knows."""
    assert f"formats up to {FORMAT}" in TOO_OLD
