"""Jobs whose arguments do not fit: left to whoever knows their kind otherwise."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.records import MisfitRow, Receipt
from support.store.storing import (
    MISFIT as REASON,
)
from support.store.storing import (
    begin_run,
    counters,
    ended,
    kind_record,
    lease,
    lease_one,
    misfit,
    new_job,
    snoozed,
    succeeded,
)

OLD, NEW = b'{"old":1}', b'{"new":1}'
UNKNOWN_FOR_S = 600.0


def knows(store, run_id, schema=OLD):
    """Let a run publish the kind by a schema."""
    begin_run(store, run_id, [kind_record(schema=schema)], ttl_s=100_000.0)


def try_it(store, run_id):
    """Lease the one job, find that it does not fit, and say what becomes of that."""
    granted = lease_one(store, run_id)
    (receipt,) = store.settle([misfit(granted)])
    return receipt


@pytest.fixture
def job_id(store):
    """A job, and a run that knows its kind by another schema than it was made for."""
    knows(store, "run-1")
    (one,) = store.enqueue([new_job()])
    return one.id


def test_a_job_that_fits_nobody_waits(store, job_id, clock):
    """Uncharged; it says what for, since when, and until when."""
    assert try_it(store, "run-1") is Receipt.HANDED_ON
    job = store.get(job_id)
    assert (job.state, job.attempt, job.outcome) == (JobState.PENDING, 0, None)
    assert counters(job) == (0, 0, 0, 0)
    assert store.attempts(job_id) == []
    assert job.run_at_ms == clock.utc_ms() + 600_000
    assert job.unfit_since_ms == clock.utc_ms()
    assert (
        job.reason
        == f"{REASON}; waits for a supervisor that has another version of its kind"
    )
    since_ms = clock.utc_ms()
    row = MisfitRow(pool="cpu", kind="shop.thumbnail", jobs=1, since_ms=since_ms)
    assert store.misfits() == [row]
    assert lease(store) == ()


def test_a_job_that_has_fitted_nobody_for_long_is_dead(store, job_id, clock):
    """Tried once more, it is charged and buried with the reason that it has."""
    try_it(store, "run-1")
    clock.advance(UNKNOWN_FOR_S)
    assert try_it(store, "run-1") is Receipt.ACCEPTED
    job = store.get(job_id)
    assert (job.state, job.outcome, job.reason) == ("dead", Outcome.FAILED, REASON)
    assert counters(job) == (1, 0, 0, 0)
    assert [one.attempt for one in store.attempts(job_id)] == [1]
    assert store.misfits() == []


def test_a_job_is_left_to_a_supervisor_with_another_version_of_its_kind(
    store, job_id, clock
):
    """At once; who has tried does not take it again meanwhile."""
    knows(store, "run-2", NEW)
    assert try_it(store, "run-1") is Receipt.HANDED_ON
    assert store.get(job_id).state is JobState.RUNNABLE
    assert lease(store, "run-1") == ()
    assert store.due({"cpu": ["shop.thumbnail"]}, 9) == {"cpu": 0}
    granted = lease_one(store, "run-2")
    assert (granted.id, granted.attempt, granted.unfit) == (job_id, 1, True)
    assert store.settle([succeeded(granted)]) == [Receipt.ACCEPTED]
    assert store.get(job_id).state is JobState.SUCCEEDED


def test_another_run_with_the_same_schema_does_not_try(store, job_id):
    """It would find the same."""
    knows(store, "run-2")
    try_it(store, "run-1")
    assert store.get(job_id).state is JobState.PENDING
    knows(store, "run-3", NEW)
    assert store.get(job_id).state is JobState.RUNNABLE
    assert lease(store, "run-2") == ()
    assert lease_one(store, "run-3").id == job_id


def test_a_run_that_begins_and_knows_it_otherwise_gets_it_at_once(store, job_id, clock):
    """Whatever it waited for; one that knows the same changes nothing."""
    try_it(store, "run-1")
    clock.advance(60)
    knows(store, "run-2")
    assert store.get(job_id).state is JobState.PENDING
    knows(store, "run-3", NEW)
    job = store.get(job_id)
    assert (job.state, job.run_at_ms) == (JobState.RUNNABLE, clock.utc_ms())


def test_a_job_that_every_living_run_has_tried_waits(store, job_id, clock):
    """Since the first of them has, and then it is dead."""
    knows(store, "run-2", NEW)
    try_it(store, "run-1")
    clock.advance(100)
    assert try_it(store, "run-2") is Receipt.HANDED_ON
    job = store.get(job_id)
    assert (job.state, job.run_at_ms) == ("pending", clock.utc_ms() + 500_000)
    clock.advance(500)
    assert try_it(store, "run-1") is Receipt.ACCEPTED
    assert store.get(job_id).state is JobState.DEAD


def test_a_run_that_has_ended_knows_nothing(store, job_id):
    """Only the living are waited for."""
    knows(store, "run-2", NEW)
    store.end_run("run-2")
    try_it(store, "run-1")
    assert store.get(job_id).state is JobState.PENDING


def test_a_job_waits_for_a_busy_supervisor_that_may_accept_it(store, job_id, clock):
    """Again and again, one try of the others each time."""
    knows(store, "run-2", NEW)
    for _ in range(3):
        assert try_it(store, "run-1") is Receipt.HANDED_ON
        assert lease(store, "run-1") == ()
        clock.advance(UNKNOWN_FOR_S)
    assert store.get(job_id).state is JobState.RUNNABLE


@pytest.mark.parametrize("end", [snoozed, lambda g: ended(g, retry_in_s=0.0)])
def test_what_has_fitted_somebody_begins_anew(store, job_id, clock, end):
    """It is not dead at once because it did not fit somebody else long ago."""
    knows(store, "run-2", NEW)
    try_it(store, "run-1")
    store.settle([end(lease_one(store, "run-2"))])
    assert store.get(job_id).unfit_since_ms is None
    store.end_run("run-2")
    clock.advance(10 * UNKNOWN_FOR_S)
    assert try_it(store, "run-1") is Receipt.HANDED_ON


def test_a_retry_tries_everybody_again(store, job_id):
    """An operator has seen to it."""
    try_it(store, "run-1")
    assert store.revive([job_id], (JobState.PENDING,)) == 1
    assert store.get(job_id).unfit_since_ms is None
    assert lease_one(store).id == job_id


def test_a_run_that_has_published_nothing_buries_at_once(store):
    """Nobody can say whether others know better."""
    begin_run(store, "run-9")
    (one,) = store.enqueue([new_job()])
    assert try_it(store, "run-9") is Receipt.ACCEPTED
    assert store.get(one.id).state is JobState.DEAD


def test_a_hook_is_enqueued_only_for_a_burial(store, job_id, clock):
    """A job that waits has no end yet."""
    hook = new_job("shop.resize")
    for jobs in (1, 2):
        burial = msgspec.structs.replace(misfit(lease_one(store)), followup=hook)
        store.settle([burial])
        assert sum(row.jobs for row in store.stats()) == jobs
        clock.advance(UNKNOWN_FOR_S)


def test_misfits_and_others_are_settled_together(store, clock):
    """Each as by itself, and twice in one call as well."""
    knows(store, "run-1")
    store.enqueue([new_job()] * 3)
    first, second, third = lease(store)
    ends = [misfit(first), succeeded(second), misfit(third), misfit(first)]
    handed_on, stale = Receipt.HANDED_ON, Receipt.STALE
    assert store.settle(ends) == [handed_on, Receipt.ACCEPTED, handed_on, stale]
    assert store.misfits()[0].jobs == 2


def test_a_suspect_that_does_not_fit_is_left_to_others(store, job_id):
    """It is not offered to the same run over and over, nor does it stop the others."""
    lost = ended(lease_one(store), Outcome.LOST)
    store.settle([msgspec.structs.replace(lost, suspect=True)])
    knows(store, "run-2", NEW)
    store.revive([job_id], (JobState.PENDING,))
    granted = lease_one(store, "run-1")
    assert granted.suspect
    assert store.settle([misfit(granted)]) == [Receipt.HANDED_ON]
    (other,) = store.enqueue([new_job()])
    assert [one.id for one in lease(store, "run-1")] == [other.id]
    assert [one.id for one in store.suspects()] == [job_id]
    assert lease(store, "run-2")[0].id == job_id


def test_pruning_forgets_what_has_ended(store, job_id):
    """A job that waits stays known."""
    try_it(store, "run-1")
    store.prune(Retention())
    assert store.get(job_id).unfit_since_ms is not None
    store.cancel([job_id])
    store.prune(Retention())
    assert store.get(job_id).unfit_since_ms is None
