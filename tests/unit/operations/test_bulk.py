"""Many jobs at once: which, in which order, and what keeps single ones out."""

import threading

import msgspec
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import PoolReport, RunReport
from jobpool.errors import UsageError
from jobpool.operations.action import Done
from jobpool.operations.jobs import Cancel, Release, Retry
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.selection import Selection, oldest_first
from jobpool.store.records.operating import AuditFilter, Filter
from support.store.storing import ended, lease, lease_one, new_job, succeeded
from support.waiting import wait_until

ADA = Principal(who="ada", role=Role.OPERATOR, origin="a test")
GIB = 2**30
KIND = "shop.thumbnail"
ASIDE = Selection(which=Filter(states=(JobState.QUARANTINED,)), shown=("quarantined",))


def out_of_memory(store, count=1, **options):
    """Quarantine jobs that have run out of memory; return their ids."""
    store.enqueue([new_job(**options) for _ in range(count)])
    granted = lease(store)
    ends = [ended(one, Outcome.OUT_OF_MEMORY) for one in granted]
    aside = [msgspec.structs.replace(e, state=JobState.QUARANTINED) for e in ends]
    store.settle(aside)
    return [one.id for one in granted]


def by_ids(*ids):
    return Selection(ids=ids)


def allow(store, most_bytes=None, fixed=()):
    """Have the supervisor say what a job may be given."""
    pool = PoolReport(size=4, memory_max_bytes=most_bytes)
    report = RunReport(pools={"cpu": pool}, fixed_memory=tuple(fixed))
    store.put_report("run-1", report)


def test_a_release_may_raise_the_memory_limit(store):
    """The job has it from then on, and the trail says so."""
    allow(store, 4 * GIB)
    (job_id,) = out_of_memory(store)
    done = operate(store, ADA, Release(jobs=by_ids(job_id), memory_bytes=2 * GIB))
    assert (done.jobs, list(done.refused)) == (1, [])
    assert lease_one(store).memory_bytes == 2 * GIB
    (row,) = store.audits(AuditFilter())
    target = msgspec.json.decode(row.target)
    assert target == {"ids": str(job_id), "memory_bytes": 2 * GIB}


@pytest.mark.parametrize(
    ("asked", "fixed", "said"),
    [
        (GIB, (), "its memory limit is 1GiB; expected more than that"),
        (GIB // 2, (), "its memory limit is 1GiB; expected more than that"),
        (5 * GIB, (), "pool cpu allows at most 4GiB; expected no more"),
        (2 * GIB, (KIND,), f'[kinds."{KIND}"] of the configuration says'),
    ],
)
def test_a_limit_that_would_not_help_is_refused(store, asked, fixed, said):
    """No more than it has, more than its pool allows, or of no effect: it stays."""
    allow(store, 4 * GIB, fixed)
    (job_id,) = out_of_memory(store)
    for jobs in (by_ids(job_id), ASIDE):
        done = operate(store, ADA, Release(jobs=jobs, memory_bytes=asked))
        assert done.jobs == 0
        (remark,) = done.refused
        assert said in remark
    assert store.get(job_id).state is JobState.QUARANTINED
    assert store.get(job_id).memory_bytes is None
    assert not store.audits(AuditFilter())


def test_its_own_limit_is_what_a_new_one_is_compared_with(store):
    """Not that of its kind."""
    allow(store)
    (job_id,) = out_of_memory(store, memory_bytes=3 * GIB)
    done = operate(store, ADA, Release(jobs=by_ids(job_id), memory_bytes=2 * GIB))
    assert done.refused == [
        f"job {job_id}: its memory limit is 3GiB; expected more than that"
    ]
    done = operate(store, ADA, Release(jobs=by_ids(job_id), memory_bytes=8 * GIB))
    assert store.get(job_id).memory_bytes == 8 * GIB


def test_by_a_filter_the_others_are_released(store):
    """What is refused is counted, by its reason."""
    allow(store, 4 * GIB)
    small, large = (
        out_of_memory(store, 3),
        out_of_memory(store, 2, memory_bytes=3 * GIB),
    )
    done = operate(store, ADA, Release(jobs=ASIDE, memory_bytes=2 * GIB))
    assert (done.jobs, done.matched) == (3, 3)
    assert done.refused == [
        "2 of these jobs: its memory limit is 3GiB; expected more than that"
    ]
    assert {store.get(one).memory_bytes for one in small} == {2 * GIB}
    assert {store.get(one).state for one in large} == {JobState.QUARANTINED}


def test_a_filter_finds_its_jobs_oldest_first_and_page_by_page(store):
    """Also between ids that nothing is left of; each once."""
    store.enqueue([new_job() for _ in range(1800)])
    (last,) = store.enqueue([new_job("shop.resize")])
    which = Filter(kind="shop.resize")
    assert list(oldest_first(store, which, [])) == []
    ((found, has_more),) = oldest_first(store, which, ["runnable"])
    assert ([job.id for job in found], has_more) == ([last.id], False)
    pages = list(oldest_first(store, Filter(), ["runnable"]))
    assert [job.id for page, _ in pages for job in page] == list(range(1, 1802))
    assert [has_more for _, has_more in pages] == [True, True, True, False]
    assert max(len(page) for page, _ in pages) == 500


def test_many_jobs_after_a_long_way_without_any_are_all_found(store):
    """Where few match, more ids are looked through at a time, until there are many."""
    store.enqueue([new_job("shop.resize") for _ in range(3500)])
    made = store.enqueue([new_job() for _ in range(1200)])
    pages = oldest_first(store, Filter(kind=KIND), ["runnable"])
    found = [job.id for page, _ in pages for job in page]
    assert found == [one.id for one in made]


def test_the_first_jobs_are_changed_before_the_last_are_read(store):
    """A bulk of millions begins at once, and can be stopped."""
    store.enqueue([new_job() for _ in range(1200)])
    done = Done()
    steps = Cancel(jobs=Selection(which=Filter())).steps(store, ADA, done)
    next(steps)()
    assert (done.matched, done.is_counting) == (500, True)
    assert store.get(1).state is JobState.CANCELED
    assert store.get(501).state is JobState.RUNNABLE
    for step in steps:
        step()
    assert (done.matched, done.is_counting) == (1200, False)
    assert store.get(1200).state is JobState.CANCELED


def test_canaries_are_changed_before_the_others_are_read(store):
    """Those come page by page once the canaries have ended well, and each once."""
    store.enqueue([new_job() for _ in range(1200)])
    store.cancel(range(1, 1201))
    done = Done()
    jobs = Selection(which=Filter(), shown=("canceled",))
    steps = Retry(jobs=jobs, canary=2).steps(store, ADA, done)
    next(steps)()
    assert set(done.canaries) == {1, 2}
    assert (done.matched, done.is_counting) == (500, True)
    store.settle([succeeded(one) for one in lease(store)])
    changed = [job_id for step in steps for job_id in step().ids]
    assert (done.matched, done.is_counting) == (1200, False)
    assert changed == list(range(3, 1201))


def test_more_canaries_than_a_page_has_are_taken_from_several(store, monkeypatch):
    monkeypatch.setattr("jobpool.operations.selection._PAGE", 2)
    store.enqueue([new_job() for _ in range(7)])
    store.cancel(range(1, 8))
    done = Done()
    jobs = Selection(which=Filter(), shown=("canceled",))
    steps = Retry(jobs=jobs, canary=5).steps(store, ADA, done)
    for _ in range(3):
        next(steps)()
    assert set(done.canaries) == set(range(1, 6))
    store.settle([succeeded(one) for one in lease(store)])
    assert [job_id for step in steps for job_id in step().ids] == [6, 7]


def test_canaries_that_fail_leave_what_was_not_read_as_it_is(store):
    """How many more there are was not counted, and nobody says that it was."""
    store.enqueue([new_job() for _ in range(700)])
    store.cancel(range(1, 701))
    done = Done()
    jobs = Selection(which=Filter(), shown=("canceled",))
    steps = Retry(jobs=jobs, canary=1).steps(store, ADA, done)
    next(steps)()
    store.settle(
        [
            msgspec.structs.replace(ended(one), state=JobState.DEAD)
            for one in lease(store)
        ]
    )
    assert list(steps) == []
    assert done.is_stopped
    assert (done.matched, done.is_counting) == (500, True)
    assert store.count(Filter(states=(JobState.CANCELED,))) == 699


def test_what_is_slow_ends_soon_once_it_is_unwanted(store):
    """It does not wait for its next batch, which may be an hour away."""
    store.enqueue([new_job() for _ in range(3)])
    done = Done()
    slow = Cancel(jobs=Selection(which=Filter()), per_s=1 / 3600)
    thread = threading.Thread(target=operate, args=(store, ADA, slow, done))
    thread.start()
    wait_until(lambda: done.jobs == 1, 30.0, "the first job is canceled")
    done.is_unwanted = True
    thread.join(30.0)
    assert not thread.is_alive()
    assert (done.jobs, store.count(Filter(states=(JobState.CANCELED,)))) == (1, 1)


def test_what_comes_meanwhile_is_left_as_it_is(store, monkeypatch):
    """Else a bulk would go on for as long as jobs die, and retry what nobody saw."""
    store.enqueue([new_job() for _ in range(3)])
    store.cancel([1])
    steps = Retry(jobs=Selection(which=Filter(), shown=("canceled",))).steps(
        store, ADA, Done()
    )
    monkeypatch.setattr("jobpool.operations.selection._PAGE", 1)
    next(steps)()
    now_ms = store.get(2).created_at_ms
    monkeypatch.setattr(store._clock, "utc_ms", lambda: now_ms + 60_000)
    store.cancel([2])
    store.enqueue([new_job()])
    store.cancel([4])
    assert [step() for step in steps] == []
    states = [store.get(job_id).state.value for job_id in (1, 2, 4)]
    assert states == ["runnable", "canceled", "canceled"]


def test_neither_ids_nor_a_filter_is_refused(store):
    """Nor both of them."""
    for jobs in (Selection(), Selection(ids=(1,), which=Filter())):
        with pytest.raises(UsageError, match="either ids or a filter"):
            operate(store, ADA, Cancel(jobs=jobs))
