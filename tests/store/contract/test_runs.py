"""Runs of supervisors: their leases begin and end with them."""

import pytest

from jobpool.core.config.settings import Retention
from jobpool.errors import JobpoolBug, StoreRefused, UsageError
from jobpool.store.records.runs import Renewal
from support.store.storing import (
    KINDS,
    begin_run,
    handed_back,
    kind_record,
    lease_one,
    new_job,
)

DAY_S = 86400


def test_a_run_is_open_from_its_beginning_to_its_end(store_factory, clock):
    """Oldest first, with what it recorded about itself."""
    store = store_factory()
    begin_run(store, "b", pools={"cpu": "2..8"})
    clock.advance(1)
    begin_run(store, "a")
    first, second = store.open_runs()
    assert (first.id, second.id) == ("b", "a")
    assert (first.host, first.pid, first.pools) == ("host", 1, {"cpu": "2..8"})
    assert first.started_at_ms == clock.utc_ms() - 1000
    assert second.lease_until_ms == clock.utc_ms() + 60_000
    assert (first.application, first.app_version) == (None, None)
    store.end_run("b")
    assert [run.id for run in store.open_runs()] == ["a"]


def test_a_run_names_its_application_and_the_version_loaded_last(store):
    """A reload begins it again, with the version that it runs from then on."""
    begin_run(store, application="jobs.py:shop", app_version="v1")
    (run,) = store.open_runs()
    assert (run.application, run.app_version) == ("jobs.py:shop", "v1")
    begin_run(store, application="jobs.py:shop", app_version="v2\0")
    (run,) = store.open_runs()
    assert run.app_version == "v2\N{REPLACEMENT CHARACTER}"


def test_one_heartbeat_renews_every_lease(store, clock):
    """The lease is the supervisor's; its jobs show it."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    clock.advance(20)
    assert store.renew("run-1", 60)
    assert store.get(granted.id).lease_until_ms == clock.utc_ms() + 60_000
    assert store.open_runs()[0].heartbeat_at_ms == clock.utc_ms()


def test_only_an_open_run_is_renewed(store):
    """An ended run learns that it has lost, an unknown one that the store is new."""
    with pytest.raises(StoreRefused, match=r"does not know run run-9.*restart jobpool"):
        store.renew("run-9", 60)
    store.end_run("run-1")
    assert not store.renew("run-1", 60)


def test_a_lease_does_not_expire_by_time(store, clock):
    """On one host only a run that is proven dead is reclaimed."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    clock.advance(10 * DAY_S)
    begin_run(store, "run-2")
    assert store.lease("run-2", {"cpu": 1}, {"cpu": ["shop.thumbnail"]}).leases == ()
    assert [one.token for one in store.leases_of("run-1")] == [granted.token]


def test_a_run_that_holds_leases_cannot_end(store):
    """Otherwise its jobs would be leased by no run forever."""
    store.enqueue([new_job()])
    granted = lease_one(store)
    with pytest.raises(JobpoolBug, match="holds 1 leases"):
        store.end_run("run-1")
    store.settle([handed_back(granted)])
    store.end_run("run-1")
    assert store.open_runs() == []


def test_an_ended_run_cannot_begin_again(store):
    """Every start has its own id."""
    store.end_run("run-1")
    with pytest.raises(UsageError, match="fresh id"):
        begin_run(store)


def test_a_reload_does_not_hide_an_expired_lease(store, clock):
    """The next renewal reports it: others may have taken jobs meanwhile."""
    clock.advance(59)
    begin_run(store)
    clock.advance(59)
    assert store.renew("run-1", 60) is Renewal.HELD
    clock.advance(61)
    begin_run(store)
    assert store.renew("run-1", 60) is Renewal.LAPSED


def test_an_expired_lease_is_extended_only_on_explicit_request(store, clock):
    """Its holder has to distrust what it holds before it can lease anything again."""
    begin_run(store)
    clock.advance(61)
    assert store.renew("run-1", 60) is Renewal.LAPSED
    assert store.renew("run-1", 60) is Renewal.LAPSED
    assert store.renew("run-1", 60, anew=True) is Renewal.LAPSED
    assert store.renew("run-1", 60) is Renewal.HELD


def test_a_run_whose_lease_lapsed_gets_no_leases_where_leases_expire(store, clock):
    """Another run may have taken what it still runs: it must notice first."""
    begin_run(store)
    store.enqueue([new_job()] * 2)
    clock.advance(61)
    batch = store.lease("run-1", {"cpu": 1}, KINDS)
    if store.one_host:
        assert len(batch.leases) == 1
        return
    assert (batch.lapsed, batch.leases, batch.next_due_in_s) == (True, (), None)
    assert store.renew("run-1", 60, anew=True) is Renewal.LAPSED
    batch = store.lease("run-1", {"cpu": 1}, KINDS)
    assert (batch.lapsed, len(batch.leases)) == (False, 1)


def test_expired_runs_are_those_that_hold_leases_past_their_time(store_factory, clock):
    """Not a run that holds nothing, has ended or still has time.

    Exactly from its expiry.
    """
    store = store_factory()
    begin_run(store, "idle", ttl_s=5)
    begin_run(store, "late", ttl_s=10)
    begin_run(store, "in-time", ttl_s=60)
    store.enqueue([new_job()] * 2)
    (held,) = store.lease("late", {"cpu": 1}, KINDS).leases
    assert len(store.lease("in-time", {"cpu": 1}, KINDS).leases) == 1
    clock.advance(9.999)
    assert store.expired_runs() == []
    clock.advance(0.001)
    (found,) = store.expired_runs()
    assert (found.id, found.host, found.ended_at_ms) == ("late", "host", None)
    store.settle([handed_back(held)])
    assert store.expired_runs() == []


def test_published_kinds_read_back(store_factory, clock):
    """With their schema and limits, as bytes and numbers."""
    store = store_factory()
    schema = '{"title":"é"}'.encode()
    begin_run(store, kinds=[kind_record(schema=schema, timeout_s=1.5)])
    (kind,) = store.kinds()
    assert (kind.kind, kind.pool, kind.schema) == ("shop.thumbnail", "cpu", schema)
    assert (kind.timeout_s, kind.memory_bytes) == (1.5, 2**30)
    assert (kind.max_attempts, kind.max_crashes) == (5, 3)
    assert kind.updated_at_ms == clock.utc_ms()


def test_a_run_replaces_what_it_published(store, clock):
    """On a reload: what its application no longer knows is withdrawn."""
    begin_run(store, kinds=[kind_record("a"), kind_record("b")])
    begin_run(store, kinds=[kind_record("b", timeout_s=7), kind_record("c")])
    assert [(kind.kind, kind.timeout_s) for kind in store.kinds()] == [
        ("b", 7.0),
        ("c", 600.0),
    ]


def test_the_newest_publication_counts(store, clock):
    """Two runs know a kind; when one withdraws it the other still does."""
    begin_run(store, kinds=[kind_record("a", timeout_s=1)])
    clock.advance(1)
    begin_run(store, "run-2", kinds=[kind_record("a", timeout_s=2)])
    assert [kind.timeout_s for kind in store.kinds()] == [2.0]
    clock.advance(1)
    begin_run(store, "run-2", kinds=[])
    assert [kind.timeout_s for kind in store.kinds()] == [1.0]


def test_kinds_outlive_their_run_until_published_anew(store, clock):
    """Clients check arguments although no supervisor runs just then."""
    begin_run(store, kinds=[kind_record("a"), kind_record("b")])
    store.end_run("run-1")
    clock.advance(2 * DAY_S)
    store.prune(Retention())
    assert [kind.kind for kind in store.kinds()] == ["a", "b"]
    begin_run(store, "run-2", kinds=[kind_record("a", timeout_s=9)])
    store.prune(Retention())
    assert [(kind.kind, kind.timeout_s) for kind in store.kinds()] == [
        ("a", 9.0),
        ("b", 600.0),
    ]


def test_cancellations_are_reported_by_token(store):
    """To the run that holds the lease, and only while it does."""
    store.enqueue([new_job()] * 3)
    leases = store.lease("run-1", {"cpu": 2}, {"cpu": ["shop.thumbnail"]}).leases
    begin_run(store, "run-2")
    other = lease_one(store, "run-2")
    store.cancel([leases[0].id, other.id])
    assert store.cancel_requests("run-1") == [leases[0].token]
    assert store.cancel_requests("run-2") == [other.token]
    store.settle([handed_back(leases[0])])
    assert store.cancel_requests("run-1") == []


def test_cancellations_are_reported_in_the_order_of_the_leases(store):
    """Whatever the order in which they were requested."""
    store.enqueue([new_job(priority=n) for n in range(4)])
    leases = [lease_one(store) for _ in range(4)]
    for one in (leases[2], leases[0], leases[3]):
        store.cancel([one.id])
    requested = store.cancel_requests("run-1")
    assert requested == [leases[0].token, leases[2].token, leases[3].token]


def test_each_runs_own_lease_counts(store, clock):
    """Whichever other runs have begun before or after it, or have ended."""
    for number, ttl_s in ((2, 10.0), (3, 60.0), (4, 10.0)):
        begin_run(store, f"run-{number}", ttl_s=ttl_s)
    begin_run(store, "run-5")
    store.end_run("run-5")
    clock.advance(30)
    answers = [store.renew(f"run-{number}", 60.0) for number in (2, 1, 4, 3, 5)]
    lapsed, held = Renewal.LAPSED, Renewal.HELD
    assert answers == [lapsed, held, lapsed, held, Renewal.ENDED]
