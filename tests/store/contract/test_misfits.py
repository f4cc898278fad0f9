"""Jobs whose arguments do not fit: left to a supervisor with another version."""

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.records.jobs import MisfitRow, Receipt
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
    """Lease the one job, find that it does not fit, and return the result."""
    granted = lease_one(store, run_id)
    (receipt,) = store.settle([misfit(granted)])
    return receipt


@pytest.fixture
def job_id(store):
    """A job, and a run whose schema of its kind differs from the job's."""
    knows(store, "run-1")
    (one,) = store.enqueue([new_job()])
    return one.id


def test_a_job_that_fits_no_version_waits(store, job_id, clock):
    """It is not charged; it says what it waits for, since when, and until when."""
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


def test_a_job_that_fits_no_version_for_long_is_dead(store, job_id, clock):
    """Tried once more, it is charged and dead with its reason."""
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
    """At once; a run that has tried it does not take it again meanwhile."""
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
    """The result would be the same."""
    knows(store, "run-2")
    try_it(store, "run-1")
    assert store.get(job_id).state is JobState.PENDING
    knows(store, "run-3", NEW)
    assert store.get(job_id).state is JobState.RUNNABLE
    assert lease(store, "run-2") == ()
    assert lease_one(store, "run-3").id == job_id


def test_a_new_run_with_another_schema_gets_the_job_at_once(store, job_id, clock):
    """Whatever it waited for. A run with the same schema changes nothing."""
    try_it(store, "run-1")
    clock.advance(60)
    knows(store, "run-2")
    assert store.get(job_id).state is JobState.PENDING
    knows(store, "run-3", NEW)
    job = store.get(job_id)
    assert (job.state, job.run_at_ms) == (JobState.RUNNABLE, clock.utc_ms())


def test_a_job_that_every_living_run_has_tried_waits(store, job_id, clock):
    """It counts from the first try, and then the job is dead."""
    knows(store, "run-2", NEW)
    try_it(store, "run-1")
    clock.advance(100)
    assert try_it(store, "run-2") is Receipt.HANDED_ON
    job = store.get(job_id)
    assert (job.state, job.run_at_ms) == ("pending", clock.utc_ms() + 500_000)
    clock.advance(500)
    assert try_it(store, "run-1") is Receipt.ACCEPTED
    assert store.get(job_id).state is JobState.DEAD


def test_an_ended_run_is_not_waited_for(store, job_id):
    """A job waits only for living runs."""
    knows(store, "run-2", NEW)
    store.end_run("run-2")
    try_it(store, "run-1")
    assert store.get(job_id).state is JobState.PENDING


def test_a_job_waits_for_a_busy_supervisor_that_may_accept_it(store, job_id, clock):
    """Again and again, one try by the others each time."""
    knows(store, "run-2", NEW)
    for _ in range(3):
        assert try_it(store, "run-1") is Receipt.HANDED_ON
        assert lease(store, "run-1") == ()
        clock.advance(UNKNOWN_FOR_S)
    assert store.get(job_id).state is JobState.RUNNABLE


@pytest.mark.parametrize("end", [snoozed, lambda g: ended(g, retry_in_s=0.0)])
def test_a_job_that_fitted_once_gets_the_full_waiting_time_again(
    store, job_id, clock, end
):
    """It is not dead at once because it once did not fit another version."""
    knows(store, "run-2", NEW)
    try_it(store, "run-1")
    store.settle([end(lease_one(store, "run-2"))])
    assert store.get(job_id).unfit_since_ms is None
    store.end_run("run-2")
    clock.advance(10 * UNKNOWN_FOR_S)
    assert try_it(store, "run-1") is Receipt.HANDED_ON


def test_a_retry_lets_every_run_try_again(store, job_id):
    """An operator has dealt with it."""
    try_it(store, "run-1")
    assert store.revive([job_id], (JobState.PENDING,)) == 1
    assert store.get(job_id).unfit_since_ms is None
    assert lease_one(store).id == job_id


def test_a_run_that_has_published_nothing_ends_the_job_at_once(store):
    """No run is known to have another schema."""
    begin_run(store, "run-9")
    (one,) = store.enqueue([new_job()])
    assert try_it(store, "run-9") is Receipt.ACCEPTED
    assert store.get(one.id).state is JobState.DEAD


def test_a_hook_is_enqueued_only_when_the_job_is_dead(store, job_id, clock):
    """A job that waits has not ended yet."""
    hook = new_job("shop.resize")
    for jobs in (1, 2):
        burial = msgspec.structs.replace(misfit(lease_one(store)), followup=hook)
        store.settle([burial])
        assert sum(row.jobs for row in store.stats()) == jobs
        clock.advance(UNKNOWN_FOR_S)


def test_jobs_that_do_not_fit_and_others_are_settled_together(store, clock):
    """Each as if alone, also twice in one call."""
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


def test_pruning_forgets_tries_of_ended_runs_and_jobs(store, job_id):
    """A job that waits keeps its records."""
    try_it(store, "run-1")
    store.prune(Retention())
    assert store.get(job_id).unfit_since_ms is not None
    store.cancel([job_id])
    store.prune(Retention())
    assert store.get(job_id).unfit_since_ms is None
