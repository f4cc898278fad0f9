"""Breakers of downstreams: a service that fails is left alone, and tried by one job."""

from jobpool.core.jobs.job import PermitAsk, PermitReturn, RequestReport
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.quotas.breaker import BreakerChange, BreakerRule, BreakerState
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, ids, publish, quota
from support.store.storing import begin_run, ended, lease, lease_one, new_job, succeeded

ENGINES = quotas.ENGINES
RULE = BreakerRule(failures=0.5, window_s=60, requests=4, pause_s=30)
OPEN, CLOSED = BreakerState.OPEN, BreakerState.CLOSED


def downstream(store, **numbers):
    """Publish a quota with a breaker, which one kind needs."""
    publish(store, quota(breaker=RULE, **numbers))


def report(store, token, requests, failures=0, value=""):
    told = [RequestReport("stripe", value, token, requests, failures)]
    return store.report_requests(told)


def opened(store, clock):
    """Have a breaker open, and return when its pause ends."""
    (change,) = report(store, 999_999, 4, 4)
    assert change.state is OPEN
    return change.until_ms


def probe(store, clock):
    """Have a breaker open, and lease its probe."""
    enqueue(store, 3)
    opened(store, clock)
    clock.advance(30)
    return lease_one_only(store)


def lease_one_only(store):
    (only,) = lease(store)
    return only


def test_it_opens_once_so_many_of_enough_requests_have_failed(store, clock):
    """Reports of several runs are added, and of fewer requests a share says nothing."""
    downstream(store)
    begin_run(store, "run-2")
    assert not report(store, 1, 2, 2)
    assert not report(store, 2, 1, 0)
    now_ms = clock.utc_ms()
    assert report(store, 3, 1, 1) == [
        BreakerChange("stripe", "", OPEN, 4, 3, now_ms + 30_000)
    ]


def test_failures_that_are_few_or_long_ago_do_not_open_it(store, clock):
    """Half of what the window holds is meant."""
    downstream(store)
    assert not report(store, 1, 100, 49)
    clock.advance(66)
    assert not report(store, 1, 3, 3)
    clock.advance(66)
    assert not report(store, 1, 3, 3)


def test_while_it_is_open_no_job_of_it_begins_and_others_do(store, clock):
    """They wait uncharged, and the store says when to look again."""
    downstream(store)
    waiting = enqueue(store, 2)
    until_ms = opened(store, clock)
    (other,) = store.enqueue([new_job(OTHER)])
    store.renew("run-1", 60.0, anew=True)
    batch = store.lease("run-1", {"cpu": 10}, {"cpu": [KIND, OTHER]})
    assert ids(batch.leases) == [other.id]
    (row,) = store.buckets("stripe")
    assert (row.waiting, row.opens_at_ms) == (2, until_ms)
    assert "fails" in row.reason
    again = store.lease("run-1", {"cpu": 10}, {"cpu": [KIND, OTHER]})
    assert (again.leases, round(again.next_due_in_s)) == ((), 30)
    assert [store.get(i).attempt for i in waiting] == [0, 0]


def test_after_its_pause_one_job_begins_in_the_whole_fleet(store, clock):
    """Whatever it costs, and whoever asks."""
    downstream(store, concurrency=10)
    begin_run(store, "run-2")
    enqueue(store, 5)
    opened(store, clock)
    clock.advance(29)
    assert not lease(store)
    clock.advance(1)
    assert len(lease(store)) == 1
    assert not lease(store)
    assert not lease(store, "run-2")
    clock.advance(120)
    store.renew("run-1", 60.0, anew=True)
    assert not lease(store, "run-2")


def test_a_clock_that_was_ahead_leaves_no_service_alone_for_long(store, clock):
    """What it has opened is probed once it is right again, and not before its probe."""
    downstream(store)
    enqueue(store, 3)
    clock.advance(86_400)
    store.renew("run-1", 60.0, anew=True)
    opened(store, clock)
    assert not lease(store)
    clock.now_ms -= 86_400_000
    store.renew("run-1", 60.0, anew=True)
    tried = lease_one_only(store)
    assert report(store, tried.token, 1) == [BreakerChange("stripe", "", CLOSED, 1, 0)]
    assert len(lease(store)) == 2


def test_a_good_answer_to_its_probe_closes_it(store, clock):
    """All that waits may begin, and what failed before is forgotten."""
    downstream(store)
    tried = probe(store, clock)
    assert report(store, tried.token, 1) == [BreakerChange("stripe", "", CLOSED, 1, 0)]
    assert store.permits_freed()
    assert len(lease(store)) == 2
    assert not report(store, 5, 3, 3)


def test_a_bad_answer_to_its_probe_opens_it_for_twice_as_long_up_to_ten_times(
    store, clock
):
    """The next probe comes after that."""
    downstream(store)
    enqueue(store, 20)
    opened(store, clock)
    clock.advance(30)
    for pause_s in (60, 120, 240, 300, 300):
        tried = lease_one_only(store)
        (change,) = report(store, tried.token, 1, 1)
        assert change.until_ms == clock.utc_ms() + pause_s * 1000
        store.settle([ended(tried)])
        clock.advance(pause_s - 1)
        assert not lease(store)
        clock.advance(1)


def test_only_what_its_probe_says_counts_until_it_is_closed(store, clock):
    """What began before says nothing new."""
    downstream(store)
    tried = probe(store, clock)
    assert not report(store, tried.token + 1, 50, 50)
    assert not report(store, tried.token + 1, 50)
    assert report(store, tried.token, 1)[0].state is CLOSED


def test_a_probe_that_ends_without_an_answer_blocks_nothing_for_ever(store, clock):
    """Its answer is waited for a while, since it may be on the way."""
    downstream(store)
    tried = probe(store, clock)
    store.settle([succeeded(tried)])
    silent_s, found = 0, lease(store)
    while not found and silent_s < 10:
        clock.advance(1)
        silent_s += 1
        found = lease(store)
    assert silent_s >= 5
    (second,) = found
    assert second.id != tried.id
    assert not report(store, tried.token, 1)
    assert report(store, second.token, 1)[0].state is CLOSED


def test_the_late_answer_of_a_probe_that_has_ended_counts(store, clock):
    """Reports come once a second, and a job may be quicker."""
    downstream(store)
    tried = probe(store, clock)
    store.settle([succeeded(tried)])
    assert not lease(store)
    assert report(store, tried.token, 1)[0].state is CLOSED
    assert len(lease(store)) == 2


def test_the_probe_of_a_run_that_died_is_replaced(store, clock):
    """On whatever path its lease ended."""
    downstream(store)
    publish(store, quota(breaker=RULE), run_id="run-2")
    tried = probe(store, clock)
    store.settle([ended(tried, Outcome.LOST)])  # as whoever reclaims it says
    store.end_run("run-1")
    assert not lease(store, "run-2")
    clock.advance(1.1)
    assert not lease(store, "run-2")
    clock.advance(5.1)
    assert len(lease(store, "run-2")) == 1


def test_a_permit_that_is_asked_for_is_refused_until_the_pause_ends(store, clock):
    """Then the attempt that gets it is the probe."""
    publish(store, quota(breaker=RULE), needs={})
    store.enqueue([new_job(OTHER)] * 2)
    one, two = lease(store)
    opened(store, clock)
    clock.advance(10)
    asks = [PermitAsk(who.id, who.token, 1, "stripe", "") for who in (one, two)]
    (answer,) = store.take_permits("run-1", asks[:1])
    assert (answer.granted, answer.retry_in_s) == (False, 20.0)
    clock.advance(20)
    answers = store.take_permits("run-1", asks)
    assert [(one.granted, one.retry_in_s) for one in answers] == [
        (True, None),
        (False, None),
    ]
    store.return_permits([PermitReturn(one.token, 1)])
    (answer,) = store.take_permits("run-1", asks[1:])
    assert not answer.granted
    assert report(store, one.token, 1)[0].state is CLOSED
    (answer,) = store.take_permits("run-1", asks[1:])
    assert answer.granted


def test_each_bucket_has_its_own(store, clock):
    """One vendor that is down keeps nobody from another."""
    publish(store, quota(breaker=RULE, per="args.vendor"))
    enqueue(store, values={"vendor": "a"})
    (other,) = enqueue(store, values={"vendor": "b"})
    (change,) = report(store, 1, 4, 4, value="a")
    assert (change.value, change.state) == ("a", OPEN)
    assert ids(lease(store)) == [other]


def test_a_costly_job_is_a_probe_like_any_other(store, clock):
    """It needs its permits, and is one all the same."""
    stripe = quota(breaker=RULE, concurrency=5)
    publish(store, stripe, needs={KIND: [quotas.Need("stripe", 3)]})
    enqueue(store, 2)
    opened(store, clock)
    clock.advance(30)
    assert len(lease(store)) == 1
    assert store.buckets("stripe")[0].used == 3


def test_an_operator_closes_it(store, clock):
    """A reset is of all that is remembered of a quota."""
    downstream(store)
    enqueue(store, 2)
    opened(store, clock)
    assert not lease(store)
    assert store.reset_quota("stripe")
    assert len(lease(store)) == 2
    assert not store.reset_quota("stripe")


def test_without_a_rule_nothing_is_counted(store):
    """Nor of a quota that nobody publishes."""
    publish(store, quota(concurrency=5))
    enqueue(store, 1)
    assert not report(store, 1, 100, 100)
    assert not store.report_requests([RequestReport("gone", "", 1, 100, 100)])
    assert not store.report_requests([])
    assert lease_one(store)


def test_it_is_shown_what_a_breaker_has_seen(store, clock):
    """Its share while it is closed; then until when, and who tries."""
    downstream(store)
    enqueue(store, 2)
    report(store, 1, 3, 1)
    (row,) = store.buckets("stripe")
    seen = row.service
    assert (seen.state, seen.requests, seen.failures) == (CLOSED, 3, 1)
    report(store, 1, 3, 3)
    (row,) = store.buckets("stripe")
    assert (row.service.state, row.service.until_ms) == (OPEN, row.opens_at_ms)
    clock.advance(30)
    tried = lease_one_only(store)
    (row,) = store.buckets("stripe")
    assert (row.service.state, row.service.probe) == (BreakerState.PROBING, tried.id)
