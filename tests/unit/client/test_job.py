"""A job as its producer sees it: results, reasons, waiting."""

import pytest

from jobpool import (
    JobErased,
    JobNotFound,
    JobUnsuccessful,
    StoreError,
    UsageError,
    WaitTimeout,
)
from jobpool.client import gateway
from jobpool.client import job as job_module
from jobpool.core.jobs.job import JobState, erased_reason
from jobpool.core.jobs.outcome import Outcome
from jobpool.testing import FakeClock
from support.store.client_fakes import FakeStore, adder, pool_with


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def jobs(store):
    return pool_with(store)


@pytest.fixture
def add(jobs):
    return adder(jobs)


def test_a_result_is_typed_by_the_annotation(store, jobs):
    """The return annotation restores what JSON lacks."""

    @jobs.job("cpu", kind="k")
    def key() -> bytes: ...

    job = key.enqueue()
    store.put(job.id, JobState.SUCCEEDED, result=b'"AAE="')
    assert job.result() == b"\0\1"
    assert jobs.get(job.id).result() == b"\0\1"


def test_a_result_that_does_not_fit_the_annotation_is_plain(store, add):
    """An older version of the handler may have returned something else."""
    job = add.enqueue(1)
    store.put(job.id, JobState.SUCCEEDED, result=b'{"sum":2}')
    assert job.result(timeout=0) == {"sum": 2}


@pytest.mark.parametrize("result", [b"{", b"\xff", b"", b"[" * 100_000])
def test_a_result_that_is_no_json_is_a_clear_error(store, add, result):
    """It was written by a compromised child, or by hand."""
    job = add.enqueue(1)
    store.put(job.id, JobState.SUCCEEDED, result=result)
    with pytest.raises(StoreError, match="is not JSON"):
        job.result(timeout=0)


@pytest.mark.parametrize("result", [None, b"null"])
def test_no_result_is_none(store, jobs, result):
    """A handler that returns nothing has the result None."""
    job = jobs.job("cpu", kind="k")(lambda: None).enqueue()
    store.put(job.id, JobState.SUCCEEDED, result=result)
    assert job.result() is None


def test_an_unsuccessful_job_says_why(store, add):
    """The error carries the evidence, as text and as attributes."""
    job = add.enqueue(1)
    store.put(
        job.id,
        JobState.QUARANTINED,
        outcome=Outcome.CRASHED,
        reason="killed by SIGSEGV; crash 3 of 3",
        error_class="shop.Bad",
        error="x" * 600,
    )
    with pytest.raises(
        JobUnsuccessful, match=r"is quarantined .* crashed; killed by SIGSEGV; crash 3"
    ) as caught:
        job.result()
    error = caught.value
    assert (error.job_id, error.state) == (job.id, "quarantined")
    assert (error.outcome, error.error_class) == ("crashed", "shop.Bad")
    assert len(str(error)) < 800


@pytest.mark.parametrize(
    ("state", "error"),
    [(JobState.SUCCEEDED, JobErased), (JobState.DEAD, JobUnsuccessful)],
)
def test_an_erased_job_says_so_and_when(store, add, state, error):
    """None would be taken for its result."""
    job = add.enqueue(1)
    store.put(
        job.id,
        state,
        result=b"null",
        finished_at_ms=1_795_600_000_000,
        reason=erased_reason(1_795_700_000_000),
    )
    with pytest.raises(error, match="its data was erased on 2026-11-26"):
        job.result()
    with pytest.raises(JobErased, match=r"arguments .* its data was erased on 2026"):
        job.arguments()
    assert isinstance(JobErased(""), JobNotFound)


def test_a_job_that_never_ran_says_so(store, add):
    """A canceled job has no outcome."""
    job = add.enqueue(1)
    assert job.cancel()
    with pytest.raises(JobUnsuccessful, match=r"is canceled .* never ran"):
        job.result()


def test_waiting_ends_with_the_job_or_the_timeout(store, add):
    """It polls more and more rarely, at least ten times a second, and never late."""
    clock, pauses = FakeClock(), []

    def sleep(seconds):
        pauses.append(seconds)
        clock.advance(seconds)

    def read(job_id):
        return gateway.existing_job(store.get(job_id), store.url)

    job = add.enqueue(1)
    with pytest.raises(WaitTimeout, match=r"job 1 \(add\) is still runnable after 5s"):
        job_module.wait_finished(read, job.id, 5.0, clock=clock, sleep=sleep)
    assert clock.monotonic_s() == pytest.approx(5.0)
    assert (pauses[0], max(pauses)) == (0.001, 0.1)
    assert store.get_calls == len(pauses) + 1

    def finish(seconds):
        store.put(job.id, JobState.SUCCEEDED, result=b"2")

    found = job_module.wait_finished(read, job.id, None, clock=clock, sleep=finish)
    assert found.state is JobState.SUCCEEDED


def test_wait_timeout_is_a_timeout_error(add):
    """``except TimeoutError`` catches it."""
    job = add.enqueue(1)
    with pytest.raises(TimeoutError):
        job.result(timeout=0)


def test_state_progress_and_info_read_the_store(store, add):
    """A handle stores no state."""
    job = add.enqueue(1)
    assert (job.state, job.progress) == (JobState.RUNNABLE, None)
    store.put(job.id, JobState.LEASED, progress=b"0.5", attempt=2)
    assert (job.state, job.progress, job.info().attempt) == ("leased", 0.5, 2)


def test_operations_report_whether_something_changed(store, jobs, add):
    """cancel, retry and release each apply to certain states."""
    job = add.enqueue(1)
    wakes = store.wakes
    assert (jobs.cancel(job.id), jobs.cancel(job.id)) == (True, False)
    assert (jobs.release(job.id), jobs.retry(job.id)) == (False, True)
    store.put(job.id, JobState.QUARANTINED)
    assert (jobs.retry(job.id), jobs.release(job.id)) == (False, True)
    assert store.wakes == wakes + 3


def test_operations_are_on_record_with_their_notes(store, jobs, add, monkeypatch):
    """As this process's user, from this program; what changed nothing is not."""
    monkeypatch.setattr("sys.argv", ["/srv/shop/manage.py", "mend"])
    job = add.enqueue(1)
    assert job.cancel(note=" by hand ")
    assert not job.cancel(note="again")
    monkeypatch.setattr("sys.argv", [])
    assert jobs.retry(job.id, note="the vendor is back")
    first, second = store.audited
    assert (first.action, first.note, first.jobs) == ("cancel", "by hand", 1)
    assert first.origin.startswith("Python (manage.py) on ")
    assert first.target == f'{{"ids":"{job.id}"}}'
    assert (second.action, second.note) == ("retry", "the vendor is back")
    assert second.origin.startswith("Python (interactive) on ")
    with pytest.raises(UsageError, match="note: expected at most 1,000 characters"):
        jobs.cancel(job.id, note="n" * 1001)
    assert len(store.audited) == 2


@pytest.mark.parametrize("job_id", [0, -1, 7, 2**63, 10**400])
@pytest.mark.parametrize("step", ["get", "wait", "cancel", "retry", "release"])
def test_an_unknown_id_is_reported(jobs, add, step, job_id):
    """An id that no store can have is simply unknown."""
    with pytest.raises(JobNotFound, match="no job has this id in sqlite:"):
        getattr(jobs, step)(job_id)


@pytest.mark.parametrize("job_id", [b"1", 1.0, True, None])
def test_an_id_is_a_whole_number(jobs, job_id):
    """An id given as text is a mistake that would find nothing."""
    with pytest.raises(UsageError, match="expected a whole number"):
        jobs.get(job_id)
