"""Retry budgets: retries begin as a share of first attempts, which never wait."""

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.core.rules.quotas.shares import KindRule
from support.store import quotas
from support.store.quotas import KIND, OTHER, enqueue, ids, publish, quota
from support.store.storing import ended, lease, new_job, snoozed, succeeded

ENGINES = quotas.ENGINES
FLOOR = parse_rate("12/m")
"""One in each twelfth of a minute."""
BUDGET = RetryBudget(0.5, FLOOR)
DELAY_S = 60.0


def budgeted(store):
    publish(store, needs={}, more={"retry_budget": BUDGET})


def failed(store, clock, count=10, **options):
    """Have so many jobs fail once; all are due again."""
    enqueue(store, count, **options)
    store.settle([ended(one, retry_in_s=DELAY_S) for one in lease(store)])
    clock.advance(DELAY_S + 6)  # Until their first attempts count no more.


def begins(store, clock, seconds, step_s=1.0):
    """Lease all that may begin for a while, and return when which did."""
    found = []
    for _ in range(round(seconds / step_s)):
        found += [(clock.utc_ms(), one) for one in lease(store)]
        clock.advance(step_s)
    return found


def test_retries_begin_at_the_floor_if_there_are_no_first_attempts(store, clock):
    """Whenever nobody makes new jobs; and not all at once, though none came before."""
    budgeted(store)
    failed(store, clock, 30)
    found = begins(store, clock, 120)
    assert 22 <= len(found) <= 26
    for at_ms, _ in found:
        assert sum(at_ms <= other < at_ms + 60_000 for other, _ in found) <= 12


def test_retries_are_a_share_of_first_attempts(store, clock):
    """Those of the last minute: ten times as many jobs, ten times as many retries."""
    budgeted(store)
    failed(store, clock, 100)
    firsts, retries = [], []
    for _ in range(120):
        fresh = set(enqueue(store, 2))
        for one in lease(store):
            (firsts if one.id in fresh else retries).append(clock.utc_ms())
            store.settle([succeeded(one)])
        clock.advance(1)
    assert len(firsts) == 240
    assert len(retries) > 60
    for at_ms in retries:
        last = sum(at_ms - 60_000 < one <= at_ms for one in retries)
        counted = sum(at_ms - 65_000 < one <= at_ms for one in firsts)
        assert last <= max(12, counted // 2)


def test_first_attempts_are_never_held_back_by_it(store, clock):
    """However many retries wait, and though those are older."""
    budgeted(store)
    failed(store, clock, 50)
    lease(store)
    for _ in range(3):
        fresh = enqueue(store, 20)
        assert set(fresh) <= set(ids(lease(store)))


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CRASHED])
def test_what_is_charged_makes_the_next_attempt_a_retry(store, clock, outcome):
    """A snooze is none."""
    publish(store, needs={}, more={"retry_budget": RetryBudget(0, FLOOR)})
    enqueue(store, 4)
    batch = lease(store)
    store.settle([snoozed(one, 60) for one in batch[:2]])
    store.settle([ended(one, outcome, retry_in_s=60) for one in batch[2:]])
    clock.advance(70)
    found = lease(store)
    assert set(ids(batch[:2])) <= set(ids(found))
    assert len(found) == 3


def test_a_retry_by_an_operator_is_a_first_attempt_again(store, clock):
    """All of the job's budgets begin anew."""
    publish(store, needs={}, more={"retry_budget": RetryBudget(0, FLOOR)})
    enqueue(store, 5)
    store.settle([ended(one, give_up=True) for one in lease(store)])
    dead = [store.get(i).state for i in range(1, 6)]
    assert set(dead) == {JobState.DEAD}
    assert store.revive(range(1, 6), [JobState.DEAD]) == 5
    assert len(lease(store)) == 5


def test_a_quota_has_a_budget_for_each_of_its_buckets(store, clock):
    """What one vendor's jobs may retry is not another's."""
    stripe = quota(per="args.vendor", retry_budget=BUDGET)
    publish(store, stripe)
    enqueue(store, 5, values={"vendor": "a"})
    enqueue(store, 5, values={"vendor": "b"})
    store.settle([ended(one, retry_in_s=DELAY_S) for one in lease(store)])
    clock.advance(70)
    assert len(lease(store)) == 2
    assert len(store.buckets("retries:quota:stripe")) == 2


def test_kinds_without_the_quota_are_not_under_its_budget(store, clock):
    """They are retried whenever they are due."""
    publish(store, quota(retry_budget=BUDGET))
    store.enqueue([new_job(OTHER)] * 5)
    store.settle([ended(one, retry_in_s=DELAY_S) for one in lease(store)])
    clock.advance(70)
    assert len(lease(store)) == 5


def test_jobs_of_all_priorities_and_tenants_share_the_fleets_budget(store, clock):
    """The higher priority goes first."""
    budgeted(store)
    enqueue(store, 3, tenant="a")
    enqueue(store, 3, tenant="b", priority=5)
    store.settle([ended(one, retry_in_s=DELAY_S) for one in lease(store)])
    clock.advance(70)
    found = begins(store, clock, 60)
    assert len(found) == 6
    assert [one.priority for _, one in found] == [5, 5, 5, 0, 0, 0]


def test_it_is_told_what_a_retry_waits_for(store, clock):
    """With when the budget has something again."""
    budgeted(store)
    failed(store, clock, 5)
    (begun,) = lease(store)
    waiting = next(i for i in range(1, 6) if i != begun.id)
    (wait,) = store.waits_of(waiting)
    assert (wait.quota, wait.why) == ("retries", "1 of 12 retries a minute have begun")
    assert 0 < wait.opens_at_ms - clock.utc_ms() <= 5000
    (row,) = store.buckets("retries")
    assert (row.waiting, row.reason) == (4, wait.why)


def test_jobs_that_are_in_no_lane_are_found_to_be_retries(store, clock):
    """Whoever has stored them, and when the budget came later."""
    publish(store, quota(retry_budget=BUDGET), needs={})
    store.enqueue([new_job(KIND)] * 6)
    store.settle([ended(one, retry_in_s=DELAY_S) for one in lease(store)])
    clock.advance(70)
    budgeted(store)
    assert len(lease(store)) == 1


def test_without_a_budget_retries_begin_when_they_are_due(store, clock):
    """Also those that waited for one."""
    budgeted(store)
    failed(store, clock, 8)
    assert len(lease(store)) == 1
    publish(store, needs={})
    assert len(lease(store)) == 7


def test_a_kind_has_a_budget_of_its_own(store, clock):
    """Beside the fleet's."""
    own = KindRule(kind=KIND, retry_budget=BUDGET)
    publish(store, needs={}, more={"kinds": (own,)})
    failed(store, clock, 5)
    assert len(lease(store)) == 1
    (row,) = [one for one in store.quotas() if one.budget is not None]
    assert (row.name, row.budget) == (f"retries:kind:{KIND}", BUDGET)
    used = row.bucket.budget
    assert (used.retries, used.most, row.waiting) == (1, 12, 4)
