"""Leases: which run gets what, in which order, under which token."""

import msgspec
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.admission import Admission
from jobpool.errors import QueueFull, StoreRefused
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    handed_back,
    lease,
    lease_one,
    make_waiting,
    new_job,
    succeeded,
    try_often,
)


def test_a_lease_carries_what_a_child_needs(store, clock):
    """The lease has the job's arguments, options and the attempt's number."""
    (answer,) = store.enqueue(
        [
            new_job(
                payload=b"[1]",
                max_attempts=2,
                timeout_s=3.5,
                memory_bytes=9,
                expires_in_ms=7000,
                priority=-7,
                key="evt-1",
                tenant="ada",
            )
        ]
    )
    granted = lease_one(store)
    assert granted.expires_at_ms == clock.utc_ms() + 7000
    assert (granted.id, granted.kind, granted.pool) == (
        answer.id,
        "shop.thumbnail",
        "cpu",
    )
    assert (granted.payload, granted.attempt) == (b"[1]", 1)
    assert (granted.max_attempts, granted.timeout_s, granted.memory_bytes) == (
        2,
        3.5,
        9,
    )
    assert (granted.leased_at_ms, granted.history) == (clock.utc_ms(), ())
    assert (granted.priority, granted.key, granted.tenant) == (-7, "evt-1", "ada")
    assert list(store.leases_of("run-1")) == [granted]
    job = store.get(answer.id)
    assert (job.state, job.supervisor, job.attempt) == ("leased", "run-1", 1)
    assert job.lease_until_ms == clock.utc_ms() + 60_000


def test_a_job_is_leased_once(store):
    """A leased job is not granted again."""
    store.enqueue([new_job()])
    assert len(lease(store)) == 1
    assert lease(store) == ()


def test_order_is_priority_then_time_then_id(store, clock):
    """Across the kinds of a pool, and never more than requested."""
    early, late = clock.utc_ms() - 2000, clock.utc_ms() - 1000
    ids = [
        answer.id
        for answer in store.enqueue(
            [
                new_job(run_at_ms=late),
                new_job(run_at_ms=early, kind="shop.resize"),
                new_job(run_at_ms=early),
                new_job(run_at_ms=late, priority=1),
                new_job(run_at_ms=early, priority=-1),
                new_job(run_at_ms=late, priority=1, kind="shop.resize"),
            ]
        )
    ]
    order = [ids[place] for place in (3, 5, 1, 2, 0, 4)]
    assert [granted.id for granted in lease(store, limit=4)] == order[:4]
    assert [granted.id for granted in lease(store, limit=4)] == order[4:]


def test_pools_are_granted_separately(store):
    """Each pool gets what it requests of its own kinds and none of another's."""
    store.enqueue([new_job()] * 3 + [new_job("shop.fetch", "io")] * 3)
    batch = store.lease("run-1", {"cpu": 2, "io": 1, "gpu": 5}, KINDS)
    assert sorted(granted.pool for granted in batch.leases) == ["cpu", "cpu", "io"]
    assert [granted.pool for granted in lease(store, pool="io")] == ["io", "io"]


def test_unknown_kinds_wait(store):
    """A kind that the run does not name stays as it is."""
    (answer,) = store.enqueue([new_job("shop.unknown")])
    assert lease(store) == ()
    assert store.get(answer.id).state is JobState.RUNNABLE
    assert len(lease(store, kinds={"cpu": ["shop.unknown"]})) == 1


def test_a_kind_named_twice_counts_once(store):
    """An alias that repeats a kind grants nothing twice."""
    store.enqueue([new_job()] * 3)
    granted = lease(store, limit=2, kinds={"cpu": ["shop.thumbnail"] * 3})
    assert len({one.id for one in granted}) == 2


@pytest.mark.parametrize("wanted", [{}, {"cpu": 0}, {"cpu": -1}])
def test_a_request_for_no_job_grants_none(store, wanted):
    """A supervisor without a free slot gets nothing."""
    store.enqueue([new_job()])
    assert store.lease("run-1", wanted, KINDS).leases == ()
    assert store.lease("run-1", {"cpu": 1}, {}).leases == ()


def test_tokens_only_grow(store):
    """Whatever happens to the leases in between."""
    store.enqueue([new_job()] * 20)
    tokens = []
    for limit in (1, 7, 3, 9):
        granted = lease(store, limit=limit)
        tokens += [one.token for one in granted]
        store.settle([handed_back(one) for one in granted])
    assert tokens == sorted(set(tokens))
    assert all(0 < token < 2**63 for token in tokens)


def test_tokens_of_a_restored_backup_differ(new_store_url):
    """The counter restarts where the backup was; the random bits do not."""
    tokens = set()
    for _ in range(6):
        store = open_store(new_store_url())
        begin_run(store)
        store.enqueue([new_job()])
        tokens.add(lease_one(store).token)
        store.close()
    assert len({token >> 20 for token in tokens}) == 1
    assert len(tokens) > 3


def test_a_run_that_is_not_open_gets_nothing(store):
    """Neither an unknown run nor one that has ended."""
    store.enqueue([new_job()])
    with pytest.raises(StoreRefused, match=r"does not know run run-9.*restart jobpool"):
        lease(store, "run-9")
    store.end_run("run-1")
    with pytest.raises(StoreRefused, match=r"run-1 has ended.*restart jobpool"):
        lease(store)


def test_pending_jobs_are_promoted_when_due(store, clock):
    """Not a millisecond earlier; the answer says when to ask again."""
    store.enqueue([new_job(delay_ms=5000), new_job(delay_ms=2000)])
    batch = store.lease("run-1", {"cpu": 5}, KINDS)
    assert (batch.leases, batch.next_due_in_s) == ((), 2.0)
    clock.advance(1.999)
    assert lease(store) == ()
    clock.advance(0.001)
    batch = store.lease("run-1", {"cpu": 5}, KINDS)
    assert (len(batch.leases), batch.next_due_in_s) == (1, 3.0)
    clock.advance(3)
    batch = store.lease("run-1", {"cpu": 5}, KINDS)
    assert (len(batch.leases), batch.next_due_in_s) == (1, None)
    assert store.get(batch.leases[0].id).run_at_ms == clock.utc_ms()


def test_promotion_is_bounded(store, clock):
    """A thousand at a time; the rest counts as due now."""
    store.enqueue([new_job(delay_ms=1000)] * 1500)
    clock.advance(1)
    batch = store.lease("run-1", {"cpu": 1200}, KINDS)
    assert (len(batch.leases), batch.next_due_in_s) == (1000, 0.0)
    assert len(lease(store, limit=1200)) == 500


def test_a_clock_that_jumps_back_leases_nothing_early(store, clock):
    """Promoted jobs stay runnable; pending ones wait again."""
    store.enqueue([new_job(), new_job(delay_ms=1000)])
    clock.advance(-3600)
    batch = store.lease("run-1", {"cpu": 5}, KINDS)
    assert len(batch.leases) == 1
    assert batch.next_due_in_s == 3601.0


def test_a_job_not_begun_in_time_is_canceled(store, clock):
    """Pending or runnable. A job that an attempt has begun does not expire."""
    first, second, third = store.enqueue(
        [
            new_job(expires_in_ms=1000),
            new_job(expires_in_ms=1000, delay_ms=5000),
            new_job(expires_in_ms=1000, kind="shop.resize"),
        ]
    )
    granted = lease_one(store, "run-1", "cpu")
    assert granted.id == first.id
    store.settle([ended(granted, Outcome.INTERRUPTED)])
    clock.advance(1)
    (again,) = lease(store)
    assert again.id == first.id
    for answer in (second, third):
        job = store.get(answer.id)
        assert job.state is JobState.CANCELED
        assert job.finished_at_ms == clock.utc_ms()
        assert "expired" in job.reason


def test_a_job_expires_exactly_when_its_time_is_up(store, clock):
    """Not one lease later: a job that may wait for a second waits for a second."""
    (answer,) = store.enqueue([new_job(expires_in_ms=1000)])
    clock.advance(1)
    assert lease(store) == ()
    assert store.get(answer.id).state is JobState.CANCELED


def test_a_waiting_job_neither_runs_nor_expires(store, clock):
    """Its time does not begin before it may run; and it is one of the queue's depth."""
    (answer,) = store.enqueue([new_job(expires_in_ms=1000)])
    make_waiting(store, answer.id)
    clock.advance(9)
    assert lease(store) == ()
    assert store.due(KINDS, 10) == {"cpu": 0, "io": 0}
    assert store.get(answer.id).state is JobState.WAITING
    assert store.find(Filter(states=(JobState.WAITING,)))
    assert [(row.state, row.jobs) for row in store.stats()] == [("waiting", 1)]


def test_a_waiting_job_counts_in_the_depth_of_the_queue(store_factory):
    """It is accepted, and unfinished."""
    store = store_factory(admission=Admission(depth_max=1))
    make_waiting(store, store.enqueue([new_job()])[0].id)
    with pytest.raises(QueueFull):
        store.enqueue([new_job()])


def test_a_job_handed_back_may_still_expire(store, clock):
    """A lease whose attempt never began counts as no attempt."""
    store.enqueue([new_job(expires_in_ms=1000)])
    store.settle([handed_back(lease_one(store))])
    clock.advance(2)
    assert lease(store) == ()


def test_more_than_a_thousand_expired_jobs_are_never_leased(store, clock):
    """The rest is met at the head of the queue, and set aside there."""
    store.enqueue([new_job(expires_in_ms=1000, priority=1)] * 1300 + [new_job()])
    clock.advance(1)
    batch = store.lease("run-1", {"cpu": 100}, KINDS)
    assert (batch.leases, batch.next_due_in_s) == ((), 0.0)
    (only,) = lease(store)
    assert only.attempt == 1
    assert store.get(only.id).priority == 0


def test_history_tells_the_policy_what_happened(store, clock):
    """Unsuccessful attempts since the last reset, oldest first."""
    store.enqueue([new_job()])
    for outcome in (Outcome.FAILED, Outcome.LOST, Outcome.TIMED_OUT):
        store.settle([ended(lease_one(store), outcome, now_ms=clock.utc_ms())])
        clock.advance(7200)
    granted = lease_one(store)
    assert [past.outcome for past in granted.history] == [
        "failed",
        "lost",
        "timed_out",
    ]
    assert granted.history[1].finished_at_ms == clock.utc_ms() - 2 * 7_200_000
    assert (granted.failures, granted.recoveries, granted.attempt) == (2, 1, 4)


def test_history_after_a_reset_is_empty(store):
    """A revived job starts with a clean record; its attempts stay on file."""
    store.enqueue([new_job(max_attempts=1)])
    granted = lease_one(store)
    store.settle([ended(granted)])
    assert store.revive([granted.id], [JobState.DEAD]) == 1
    again = lease_one(store)
    assert (again.history, again.attempt, again.failures) == ((), 2, 0)
    assert len(store.attempts(granted.id)) == 1
    store.settle([ended(again, Outcome.LOST)])
    assert [past.outcome for past in lease_one(store).history] == ["lost"]
    assert len(store.attempts(granted.id)) == 2


def settle_lost(store, clock, granted, rule=None):
    clock.advance(1)
    settlement = ended(granted, Outcome.LOST, now_ms=clock.utc_ms())
    again = {"state": JobState.PENDING, "rule": rule}
    store.settle([msgspec.structs.replace(settlement, **again)])


def test_history_is_bounded(store, clock):
    """The newest thousand, oldest of these first; and the first under each rule."""
    store.enqueue([new_job()])
    store.renew("run-1", 3600.0, anew=True)
    firsts = []
    for number in (0, 1, 2, 900, 1003, 1004):
        (granted,) = store.lease("run-1", {"cpu": 1}, KINDS).leases
        if number > granted.attempt:
            settle_lost(store, clock, granted)
            try_often(store, clock, granted.id, number - granted.attempt)
            (granted,) = store.lease("run-1", {"cpu": 1}, KINDS).leases
        assert granted.attempt == number + 1
        rule = "shop.NotYet" if number in {1, 2, 900} else None
        settle_lost(store, clock, granted, rule)
        if rule:
            firsts.append(clock.utc_ms())
    granted = lease_one(store)
    assert len(granted.history) == 1001
    oldest = granted.history[0]
    assert (oldest.rule, oldest.finished_at_ms) == ("shop.NotYet", firsts[0])
    times = [past.finished_at_ms for past in granted.history]
    assert times == sorted(times)
    assert times[-1] == clock.utc_ms()


def test_leases_of_a_run_are_found_again(store):
    """After a supervisor's death: the same leases under the same tokens."""
    store.enqueue([new_job(payload=b"%d" % i) for i in range(5)])
    granted = lease(store, limit=3)
    begin_run(store, "run-2")
    other = lease(store, "run-2", limit=1)
    assert sorted(store.leases_of("run-1"), key=lambda one: one.id) == list(granted)
    assert store.leases_of("run-2") == list(other)
    store.settle([succeeded(one) for one in granted])
    assert store.leases_of("run-1") == []


def test_due_counts_up_to_a_limit(store, clock):
    """Runnable and due jobs of known kinds; paused ones count as zero."""
    store.enqueue([new_job()] * 5 + [new_job(delay_ms=1000)] * 4)
    store.enqueue([new_job("shop.unknown")] * 3 + [new_job("shop.fetch", "io")])
    assert store.due(KINDS, 100) == {"cpu": 5, "io": 1}
    clock.advance(1)
    assert store.due(KINDS, 100) == {"cpu": 9, "io": 1}
    assert store.due(KINDS, 7) == {"cpu": 7, "io": 1}
    store.pause(pool="cpu")
    store.pause(kind="shop.fetch")
    assert store.due(KINDS, 100) == {"cpu": 0, "io": 0}


def test_paused_pools_and_kinds_are_skipped(store):
    """Until they are resumed; leased jobs go on."""
    store.enqueue([new_job(), new_job("shop.resize"), new_job("shop.fetch", "io")])
    assert store.pause(kind="shop.thumbnail")
    assert [granted.kind for granted in lease(store)] == ["shop.resize"]
    assert store.pause(pool="io")
    assert lease(store, pool="io") == ()
    assert store.resume(kind="shop.thumbnail")
    assert store.resume(pool="io")
    assert [granted.kind for granted in lease(store)] == ["shop.thumbnail"]
    assert len(lease(store, pool="io")) == 1


def test_a_pause_of_the_same_name_in_the_other_table_changes_nothing(store, clock):
    """A kind may have a pool's name, and a pool a kind's."""
    store.enqueue([new_job(), new_job(delay_ms=1)])
    clock.advance(1)
    store.pause(kind="cpu")
    store.pause(kind="shop.fetch")
    store.pause(pool="io")
    store.pause(pool="shop.thumbnail")
    assert store.due({"cpu": KINDS["cpu"]}, 10) == {"cpu": 2}
    (waiting,) = [row for row in store.waiting() if row.pool == "cpu"]
    assert not waiting.paused
    assert len(store.lease("run-1", {"cpu": 5}, KINDS).leases) == 2


def test_the_jobs_due_longest_are_promoted_first(store, clock):
    """If more are due than one promotion takes, the latest wait."""
    late = store.enqueue([new_job(delay_ms=9000)])[0].id
    store.enqueue([new_job(delay_ms=5000)] * 999)
    early = store.enqueue([new_job(delay_ms=1000)])[0].id
    clock.advance(10)
    granted = store.lease("run-1", {"cpu": 1}, KINDS).leases
    assert [one.id for one in granted] == [early]
    assert store.get(late).state is JobState.PENDING
    assert store.count(Filter(states=(JobState.PENDING,))) == 1


def test_the_jobs_that_expired_first_are_canceled_first(store, clock):
    """If more have expired than one call cancels, the latest are left for the next."""
    options = {"delay_ms": 60_000}
    late = store.enqueue([new_job(expires_in_ms=9000, **options)])[0].id
    store.enqueue([new_job(expires_in_ms=5000, **options)] * 1000)
    clock.advance(10)
    store.lease("run-1", {"cpu": 1}, KINDS)
    assert store.get(late).state is JobState.PENDING
    assert store.count(Filter(states=(JobState.PENDING,))) == 1


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({}, {"priority": 5}),
        ({"priority": -5}, {}),
        ({}, {"run_at_ms": 1}),
        ({"priority": 1, "run_at_ms": 1}, {"priority": 2}),
    ],
)
@pytest.mark.parametrize("limit", [1, 2])
def test_the_best_of_all_kinds_is_granted(store, worse, better, limit):
    """However many others there are, of any kind."""
    for kinds in (("shop.thumbnail", "shop.resize"), ("shop.resize", "shop.thumbnail")):
        store.enqueue([new_job(kinds[0], **worse)] * 20)
        wanted = store.enqueue([new_job(kinds[1], **better)] * limit)
        granted = store.lease("run-1", {"cpu": limit}, KINDS).leases
        assert [one.id for one in granted] == [one.id for one in wanted]
