"""Queries: what people and programs see of the store."""

import msgspec
import pytest

from jobpool.core.jobs.flow import NewFlow, NewStep
from jobpool.core.jobs.job import Evidence, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.postgres.store import PostgresStore
from jobpool.store.records.operating import Filter
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
from support.waiting import wait_until


@pytest.mark.parametrize("job_id", [0, -1, 999, 2**63, 10**30])
def test_an_unknown_job_is_none_and_an_empty_listing_is_empty(store, job_id):
    """None, whatever the id is; a listing is empty."""
    store.enqueue([new_job()])
    assert store.get(job_id) is None
    assert store.payload(job_id) is None
    assert store.attempts(job_id) == []
    assert store.find(Filter(ids=(job_id,))) == []
    assert store.count(Filter(ids=(job_id,))) == 0


def test_a_ref_names_its_job_and_no_other(store):
    """It is the same however the job is read, and after a restart of the store."""
    (one, other) = store.enqueue([new_job(), new_job()])
    ref = store.get(one.id).ref
    assert store.id_of(ref) == one.id
    assert store.ref_of(one.id) == ref
    assert [job.ref for job in store.find(Filter(ids=(one.id,)))] == [ref]
    assert store.get(other.id).ref != ref
    assert store.id_of(ref + "a") is None
    assert store.id_of(str(one.id)) is None


def test_every_user_of_a_store_takes_its_refs(store, store_factory):
    """The key is the store's, not the object's."""
    (one,) = store.enqueue([new_job()])
    assert store_factory().id_of(store.get(one.id).ref) == one.id


@pytest.fixture
def shop(store, clock):
    """Five jobs, a day apart: dead, succeeded, leased, runnable, pending."""
    jobs = [
        new_job(tenant="a"),
        new_job("shop.fetch", "io", tenant="b"),
        new_job("shop.fetch", "io", key="twice"),
        new_job("shop.resize", key="twice"),
        new_job(delay_ms=10**9),
    ]
    ids = []
    for job in jobs:
        ids += [answer.id for answer in store.enqueue([job])]
        clock.advance(86400)
    (granted,) = lease(store, kinds={"cpu": ["shop.thumbnail"]})
    store.settle([ended(granted, give_up=True)])
    clock.advance(10)
    store.settle([succeeded(lease_one(store, pool="io"), duration_s=2.0)])
    lease_one(store, pool="io")
    return ids


@pytest.mark.parametrize(
    ("which", "places"),
    [
        ({}, [4, 3, 2, 1, 0]),
        ({"ids": ()}, []),
        ({"states": ()}, []),
        ({"kind": "shop.fetch"}, [2, 1]),
        ({"pool": "cpu"}, [4, 3, 0]),
        ({"tenant": "b"}, [1]),
        ({"key": "twice"}, [3, 2]),
        ({"key": "twice", "kind": "shop.fetch"}, [2]),
        ({"key": "twice", "ids": (1, 2, 3)}, [2]),
        ({"key": "nobody's"}, []),
        ({"kind": "\0"}, []),
        ({"pool": "\0"}, []),
        ({"tenant": "\udcff"}, []),
        ({"key": "\udcff"}, []),
        ({"states": (JobState.DEAD, JobState.LEASED)}, [2, 0]),
        ({"states": (JobState.PENDING,), "pool": "cpu"}, [4]),
        ({"kind": "shop.fetch", "tenant": "a"}, []),
        ({"kind": "' OR 1=1 --"}, []),
    ],
    ids=str,
)
def test_a_filter_combines_all_of_its_parts(store, shop, which, places):
    """Newest first; counting agrees with finding."""
    wanted = [shop[place] for place in places]
    assert [job.id for job in store.find(Filter(**which))] == wanted
    assert store.count(Filter(**which)) == len(wanted)
    assert sum(row.jobs for row in store.groups(Filter(**which))) == len(wanted)


def test_a_filter_selects_by_ids(store, shop):
    """In any order, unknown ones left out."""
    which = Filter(ids=(shop[3], 10**30, shop[1], 999))
    assert [job.id for job in store.find(which)] == [shop[3], shop[1]]


def test_since_means_finished_or_created(store, shop, clock):
    """A finished job by its end, an unfinished one by its creation."""
    settled_ms = clock.utc_ms()
    assert [job.id for job in store.find(Filter(since_ms=settled_ms))] == [shop[1]]
    created_ms = store.get(shop[3]).created_at_ms
    found = {job.id for job in store.find(Filter(since_ms=created_ms))}
    assert found == {shop[0], shop[1], shop[3], shop[4]}


def test_pages_continue_where_the_last_one_ended(store):
    """Each page begins before the id that the last one ended with."""
    ids = [answer.id for answer in store.enqueue([new_job()] * 7)]
    pages, before_id = [], None
    while page := store.find(Filter(), 3, before_id):
        pages.append([job.id for job in page])
        before_id = pages[-1][-1]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [job_id for page in pages for job_id in page] == ids[::-1]


def test_the_largest_groups_come_first(store):
    """By kind, state and reason."""
    store.enqueue([new_job()] * 5)
    for _ in range(4):
        settlement = ended(lease_one(store), Outcome.CRASHED, give_up=True)
        store.settle([settlement])
    rows = store.groups(Filter())
    assert [(row.state, row.jobs) for row in rows] == [("dead", 4), ("runnable", 1)]
    assert rows[0].reason == "the handler gave up"


def test_groups_show_how_the_last_attempt_ended(store):
    """Outcome and error class, if there is one."""
    store.enqueue([new_job()] * 4)
    for outcome, name in (
        (Outcome.FAILED, "shop.Down"),
        (Outcome.FAILED, "shop.Bad"),
        (Outcome.CRASHED, None),
    ):
        evidence = Evidence(reason="why", error_class=name)
        gone = ended(lease_one(store), outcome, give_up=True, evidence=evidence)
        store.settle([gone])
    rows = store.groups(Filter())
    assert [(row.reason, row.outcome, row.error_class) for row in rows] == [
        ("why", "crashed", None),
        ("why", "failed", "shop.Bad"),
        ("why", "failed", "shop.Down"),
        (None, None, None),
    ]


def test_groups_of_equal_size_have_a_fixed_order(store):
    """By kind, state and reason; without a reason first, in any database."""
    ids = [made.id for made in store.enqueue([new_job()] * 2)]
    granted = lease_one(store)
    store.cancel(ids)
    store.settle([ended(granted, Outcome.CANCELED)])
    reasons = [row.reason for row in store.groups(Filter())]
    assert reasons == [None, "canceled on request"]


def test_stats_count_and_average(store, clock):
    """Seconds of waiting before the start and of running."""
    store.enqueue([new_job()] * 2)
    for wait_s, run_s in ((4, 1.0), (2, 3.0)):
        clock.advance(wait_s)
        granted = lease_one(store)
        store.begin_attempts([started(granted, "cpu/0")])
        store.settle([succeeded(granted, duration_s=run_s)])
    store.enqueue([new_job("shop.fetch", "io")])
    succeeded_row, waiting_row = store.stats()
    assert (succeeded_row.kind, succeeded_row.state) == ("shop.thumbnail", "succeeded")
    assert (succeeded_row.jobs, succeeded_row.mean_run_s) == (2, 2.0)
    assert succeeded_row.mean_wait_s == 5.0  # After 4 s, and after 6 s.
    assert (waiting_row.state, waiting_row.jobs) == ("runnable", 1)
    assert (waiting_row.mean_wait_s, waiting_row.mean_run_s) == (None, None)


def test_jobs_whose_time_has_come_are_due_though_no_supervisor_runs(store, clock):
    """Only a supervisor would have made them runnable."""
    begin_run(store, kinds=[kind_record()])
    store.enqueue([new_job(delay_ms=2000), new_job(delay_ms=5000, priority=3)])
    store.enqueue([new_job("shop.fetch", "io", delay_ms=1000)])
    store.enqueue([new_job(delay_ms=60_000), new_job()])
    clock.advance(7)
    store.pause(pool="io")
    assert [(row.kind, row.state, row.jobs) for row in store.stats()] == [
        ("shop.thumbnail", "pending", 1),
        ("shop.thumbnail", "runnable", 3),
        ("shop.fetch", "runnable", 1),
    ]
    first, second = store.waiting()
    assert (first.kind, first.jobs, first.oldest_age_s) == ("shop.thumbnail", 3, 7.0)
    assert (first.known, first.paused) == (True, False)
    assert (second.kind, second.jobs, second.oldest_age_s) == ("shop.fetch", 1, 6.0)
    assert (second.known, second.paused) == (False, True)
    depths = {(row.kind, row.state, row.band): row.jobs for row in store.depths()}
    assert depths == {
        ("shop.fetch", "runnable", "normal"): 1,
        ("shop.thumbnail", "pending", "normal"): 1,
        ("shop.thumbnail", "runnable", "high"): 1,
        ("shop.thumbnail", "runnable", "normal"): 2,
    }


def test_figures_are_shown_beside_limits(store):
    """p50, p99 and the maximum by nearest rank, over successes and failures."""
    begin_run(store, kinds=[kind_record(timeout_s=30, memory_bytes=500)])
    store.enqueue([new_job()] * 100 + [new_job("shop.unknown")])
    leases = lease(store)
    settlements = []
    for number, granted in enumerate(leases, start=1):
        if number % 2:
            figures = {"peak_rss_bytes": number, "duration_s": number / 10}
            settlements.append(succeeded(granted, **figures))
        else:
            settlement = ended(granted, Outcome.TIMED_OUT)
            evidence = msgspec.structs.replace(
                settlement.evidence, peak_rss_bytes=number, duration_s=number / 10
            )
            settlements.append(msgspec.structs.replace(settlement, evidence=evidence))
    store.settle(settlements)
    (row,) = store.figures()
    assert (row.kind, row.pool, row.attempts) == ("shop.thumbnail", "cpu", 100)
    assert (row.rss_p50_bytes, row.rss_p99_bytes, row.rss_max_bytes) == (50, 99, 100)
    assert (row.duration_p50_s, row.duration_p99_s) == (5.0, 9.9)
    assert (row.duration_max_s, row.memory_bytes, row.timeout_s) == (10.0, 500, 30.0)


def test_figures_are_from_the_newest_thousand_attempts(store, clock):
    """What a kind used to need is not what it needs now.

    The oldest attempts drop out.
    """
    store.enqueue([new_job()] * 1100)
    leases = lease(store, limit=2000)
    store.settle([succeeded(one, peak_rss_bytes=10**9) for one in leases[-100:]])
    clock.advance(1)
    store.settle([succeeded(one, peak_rss_bytes=5) for one in leases[:-100]])
    (row,) = store.figures()
    assert (row.attempts, row.rss_max_bytes) == (1000, 5)


def test_figures_may_be_missing(store):
    """An attempt that was not measured, of a kind that was not published."""
    store.enqueue([new_job()])
    store.settle([succeeded(lease_one(store))])
    (row,) = store.figures()
    assert (row.attempts, row.rss_p99_bytes, row.duration_max_s) == (1, None, None)
    assert (row.memory_bytes, row.timeout_s) == (None, None)


def test_waiting_kinds_show_the_age_of_their_oldest_job(store, clock):
    """And whether any run knows them, or they are paused."""
    begin_run(store, kinds=[kind_record()])
    store.enqueue([new_job()])
    clock.advance(5)
    store.enqueue([new_job(), new_job("shop.unknown"), new_job(delay_ms=1)])
    store.pause(kind="shop.unknown")
    known, unknown = store.waiting()
    assert (known.kind, known.jobs, known.oldest_age_s) == ("shop.thumbnail", 2, 5.0)
    assert (known.known, known.paused) == (True, False)
    assert (unknown.kind, unknown.known, unknown.paused) == (
        "shop.unknown",
        False,
        True,
    )


def test_waiting_kinds_have_a_fixed_order(store):
    """By pool, then by kind, whichever came first."""
    for kind, pool in (("b", "io"), ("b", "cpu"), ("a", "io")):
        store.enqueue([new_job(kind, pool)])
    waiting = [(row.pool, row.kind) for row in store.waiting()]
    assert waiting == [("cpu", "b"), ("io", "a"), ("io", "b")]


def test_changed_reports_only_changes_by_others(store_factory):
    """True at first, then only after another connection's commit."""
    mine, other = store_factory(), store_factory()
    assert mine.changed()
    _is_unchanged(mine)
    mine.enqueue([new_job()])
    mine.changed()  # A server cannot tell its own commits apart.
    other.enqueue([new_job()])
    assert mine.changed()
    _is_unchanged(mine)


def _is_unchanged(store):
    """Of a server any commit counts, also of its own autovacuum: ask until it rests."""
    if isinstance(store, PostgresStore):
        wait_until(lambda: not store.changed(), 30, "a look without any commit before")
    else:
        assert not store.changed()


def test_the_store_describes_itself(store):
    """For `doctor`: every fact is a text."""
    facts = store.describe()
    assert facts["stale_settlements"] == "0"
    assert all(isinstance(value, str) and value for value in facts.values())


def test_samples_are_the_newest_successes_with_the_size_of_their_arguments(store):
    """What failed is none: it was ended early. Nor is one that was not measured."""
    store.enqueue([new_job(payload=b'["' + b"x" * size + b'"]') for size in (1, 9, 5)])
    store.enqueue([new_job(pool="io"), new_job(pool="io")])
    small, large, failing = lease(store)
    store.settle(
        [
            succeeded(small, peak_rss_bytes=10, duration_s=1.0),
            succeeded(large, peak_rss_bytes=90, duration_s=2.0),
            ended(failing, Outcome.TIMED_OUT),
        ]
    )
    measured, other = lease(store, pool="io", kinds={"io": ["shop.thumbnail"]})
    store.settle(
        [succeeded(measured, peak_rss_bytes=7, duration_s=3.0), succeeded(other)]
    )
    assert [
        (row.kind, row.pool, row.peak_rss_bytes, row.duration_s, row.payload_bytes)
        for row in store.samples()
    ] == [
        ("shop.thumbnail", "cpu", 10, 1.0, 5),
        ("shop.thumbnail", "cpu", 90, 2.0, 13),
        ("shop.thumbnail", "io", 7, 3.0, len(new_job().payload)),
    ]


def test_samples_of_a_kind_are_a_thousand_at_most(store):
    store.enqueue([new_job()] * 1010)
    leases = lease(store, limit=2000)
    store.settle(
        [
            succeeded(one, peak_rss_bytes=number, duration_s=1.0)
            for number, one in enumerate(leases, start=1)
        ]
    )
    found = [row.peak_rss_bytes for row in store.samples()]
    assert found == list(range(11, 1011))


def test_depths_count_what_has_not_ended_and_what_people_must_look_at(store):
    store.enqueue([new_job(), new_job(priority=5), new_job(priority=-5), new_job()])
    store.enqueue([new_job(run_at_ms=2**42)])
    first, second = lease(store, limit=2)
    store.settle([succeeded(first), ended(second, Outcome.CRASHED)])
    found = {(row.state, row.band): row.jobs for row in store.depths()}
    assert sum(found.values()) == 4  # one has succeeded
    assert found["runnable", "low"] == 1
    assert found["pending", "normal"] >= 1
    assert {(row.kind, row.pool) for row in store.depths()} == {
        ("shop.thumbnail", "cpu")
    }


def test_depths_of_tenants_are_the_largest(store):
    store.enqueue([new_job(tenant="a")] * 3 + [new_job(tenant="b")] * 5 + [new_job()])
    assert store.tenant_depths() == [("b", "runnable", 5), ("a", "runnable", 3)]
    assert store.tenant_depths(1) == [("b", "runnable", 5)]


def test_open_flows_are_counted_by_state(store):
    """Those that have ended are not."""
    assert store.open_flows() == {}
    step = NewStep(number=0, name="only")
    for key in ("a", "b"):
        flow = NewFlow(name="report", key=key, steps=(step,))
        store.enqueue_flow(flow, [(0, new_job())])
    assert store.open_flows() == {"open": 2}
