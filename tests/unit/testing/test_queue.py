"""`jobpool.testing.Queue`: a whole queue in a test, in virtual time."""

import datetime as dt
import sqlite3
import subprocess
import sys

import pytest

from jobpool import (
    GiveUp,
    JobPool,
    JobUnsuccessful,
    RetryLater,
    Snooze,
    StoreUnavailable,
    UsageError,
    current,
)
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.testing import FakeClock, Fault, Queue


@pytest.fixture
def jobs():
    return JobPool()


@pytest.fixture
def queue(jobs):
    with Queue() as queue:
        queue.serve(jobs)
        yield queue


def moment(queue):
    return queue.clock.utc_ms() / 1000


def test_jobs_run_only_when_the_test_says_so_and_their_results_are_typed(jobs, queue):
    @jobs.job("cpu", kind="later")
    def later(when: dt.datetime) -> dt.datetime:
        return when + dt.timedelta(days=1)

    day = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    job = later.enqueue(day)
    assert job.state == "runnable"
    (ran,) = queue.run_due()
    assert (ran.job_id, ran.kind, ran.attempt) == (job.id, "later", 1)
    assert (ran.state, ran.outcome) == (JobState.SUCCEEDED, Outcome.SUCCEEDED)
    assert job.result() == day + dt.timedelta(days=1)
    assert queue.run_due() == []


def test_retries_wait_in_virtual_time_as_their_rules_say(jobs, queue):
    """Two hours of pauses pass at once, and each attempt sees its number."""
    seen = []

    @jobs.job("io", kind="fetch", retry={ConnectionError: ["1m", "2h"]})
    def fetch():
        seen.append((current().attempt, round(moment(queue) - begun)))
        if current().attempt < 3:
            raise ConnectionError("not yet")

    begun = moment(queue)
    job = fetch.enqueue()
    ran = queue.drain()
    assert [one.outcome for one in ran] == ["failed", "failed", "succeeded"]
    assert [type(one.error) for one in ran] == [
        ConnectionError,
        ConnectionError,
        type(None),
    ]
    assert [attempt for attempt, _ in seen] == [1, 2, 3]
    assert seen[1][1] >= 54
    assert seen[2][1] >= 6480
    assert job.state == "succeeded"


def test_an_attempt_can_give_up_snooze_and_name_its_delay(jobs, queue):
    @jobs.job("io", kind="picky")
    def picky(how: str):
        if current().attempt > 1 or current().snoozes:
            return
        raise {"never": GiveUp("no"), "soon": RetryLater("5s"), "nap": Snooze("9s")}[
            how
        ]

    never, soon, nap = (picky.enqueue(how) for how in ("never", "soon", "nap"))
    queue.run_due()
    assert never.state == "dead"
    assert (soon.state, nap.state) == ("pending", "pending")
    queue.advance("6s")
    assert (soon.state, nap.state) == ("succeeded", "pending")
    queue.advance("6s")
    assert nap.state == "succeeded"
    with pytest.raises(JobUnsuccessful, match="gave up: no"):
        never.result()


def test_a_handler_enqueues_beats_and_reads_as_in_a_child(jobs, queue):
    @jobs.job("cpu", kind="parent", retry={ValueError: ["1s"]})
    def parent() -> int:
        done = current().checkpoint
        if done is None:
            current().heartbeat(
                progress="half", checkpoint={"child": child.enqueue().id}
            )
            raise ValueError("again")
        return jobs.get(done["child"]).result(timeout=0)

    @jobs.job("cpu", kind="child")
    def child() -> int:
        return 42

    job = parent.enqueue()
    queue.drain()
    assert job.result() == 42
    queue.assert_enqueued(child.call(), times=1)


@pytest.mark.parametrize("at", ["begin", "end"])
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.KILLED, Outcome.CRASHED),
        (Fault.SEGFAULT, Outcome.CRASHED),
        (Fault.OUT_OF_MEMORY, Outcome.OUT_OF_MEMORY),
        (Fault.TIMED_OUT, Outcome.TIMED_OUT),
        (Fault.STALLED, Outcome.STALLED),
        (Fault.LEASE_LOST, Outcome.LOST),
    ],
)
def test_the_next_attempt_dies_as_asked_and_the_one_after_runs(
    jobs, queue, fault, outcome, at
):
    """Side effects are done or not, as asked; either way the job runs again."""
    effects = []

    @jobs.job("cpu", kind="fragile", memory="64MiB", timeout="3s")
    def fragile() -> str:
        effects.append(current().token)
        return "done"

    queue.fail_next(fault, fragile, at=at)
    job = fragile.enqueue()
    ran = queue.drain()
    assert [one.outcome for one in ran] == [outcome, Outcome.SUCCEEDED]
    assert len(set(effects)) == (1 if at == "begin" else 2)
    assert job.result() == "done"


def test_the_evidence_of_a_fault_is_a_supervisors(jobs, queue):
    @jobs.job("cpu", kind="big", memory="64MiB", max_crashes=1)
    def big(): ...

    @jobs.job("cpu", kind="slow", timeout="3s", max_attempts=1)
    def slow(): ...

    queue.fail_next("out_of_memory", big)
    queue.fail_next("timed_out", slow)
    jobs_ = [big.enqueue(), slow.enqueue()]
    queue.run_due()
    assert [job.state for job in jobs_] == ["quarantined", "dead"]
    texts = []
    for job in jobs_:
        with pytest.raises(JobUnsuccessful) as told:
            job.result()
        texts.append(str(told.value))
    assert "killed at 65MiB, over its memory limit of 64MiB" in texts[0]
    assert "killed at its time limit of 3s" in texts[1]


def test_a_fault_meant_for_one_handler_spares_others(jobs, queue):
    @jobs.job("cpu", kind="one", max_crashes=1)
    def one(): ...

    @jobs.job("cpu", kind="other", max_crashes=1)
    def other(): ...

    queue.fail_next("killed", other)
    first, second = one.enqueue(), other.enqueue()
    queue.run_due()
    assert (first.state, second.state) == ("succeeded", "quarantined")


def test_a_store_that_is_away_refuses_and_changes_nothing(jobs, queue):
    @jobs.job("cpu", kind="x")
    def x(): ...

    with queue.store_away(), pytest.raises(StoreUnavailable, match="nothing was done"):
        x.enqueue()
    queue.assert_not_enqueued()
    x.enqueue()
    queue.assert_enqueued(x.call())


def test_schedules_tick_as_time_passes_and_not_before(jobs, queue):
    @jobs.cron("0 * * * *")
    @jobs.job("cpu", kind="hourly")
    def hourly(): ...

    assert queue.drain() == []
    assert len(queue.advance("3h")) == 3
    assert len(queue.advance("59m")) == 0
    assert len(queue.advance("1m")) == 1


def test_delays_keys_and_unique_texts_hold_as_in_any_store(jobs, queue):
    @jobs.job("cpu", kind="x")
    def x(n: int): ...

    assert x.options(key="k").enqueue(1).id == x.options(key="k").enqueue(1).id
    late = x.options(run_in="1h").enqueue(2)
    queue.run_due()
    assert late.state == "pending"
    queue.drain()
    assert late.state == "succeeded"


def test_flows_run_in_their_order_with_results(jobs, queue):
    @jobs.job("cpu", kind="load")
    def load(n: int) -> int:
        return n * 10

    @jobs.job("cpu", kind="total")
    def total(parts: list[int]) -> int:
        return sum(parts)

    flow = jobs.flow("sum")
    parts = flow.add_many(load.call(n) for n in (1, 2, 3))
    flow.add(total.call(parts.value))
    run = flow.enqueue()
    assert [one.kind for one in queue.drain()] == ["load"] * 3 + ["total"]
    assert run.state == "succeeded"
    assert queue.jobs(total)[0].result() == 60


def test_a_rate_is_kept_in_virtual_time(jobs, queue):
    vendor = jobs.quota("vendor", rate="1/m", burst=1)
    times = []

    @jobs.job("io", kind="ask", quotas=[vendor])
    def ask():
        times.append(moment(queue))

    for _ in range(3):
        ask.enqueue()
    queue.drain()
    assert len(times) == 3
    assert times[2] - times[0] >= 119


def test_hooks_run_for_jobs_that_end_for_good(jobs, queue):
    told = []

    @jobs.on_dead
    def tell(job):
        told.append((job.kind, job.error_class))

    @jobs.job("cpu", kind="doomed", max_attempts=1)
    def doomed():
        raise ValueError("always")

    doomed.enqueue()
    queue.drain()
    assert told == [("doomed", "ValueError")]


def test_an_async_handler_and_enqueueing_from_async_code(jobs, queue):
    import asyncio

    @jobs.job("io", kind="nap")
    async def nap() -> str:
        await asyncio.sleep(0)
        return "rested"

    job = asyncio.run(nap.enqueue_async())
    queue.run_due()
    assert job.result() == "rested"


def test_a_job_on_a_connection_is_there_at_once(jobs, queue):
    """It is as if the transaction were committed: no store could see it before."""

    @jobs.job("cpu", kind="x")
    def x(): ...

    connection = sqlite3.connect(":memory:")
    x.options(connection=connection).enqueue()
    with jobs.transaction(connection):
        x.options(connection=connection).enqueue()
        flow = jobs.flow("both")
        flow.add(x.call())
        flow.enqueue(connection=connection)
    queue.assert_enqueued(x.call(), times=3)
    connection.close()


def test_what_was_enqueued_is_told_apart_by_arguments_and_options(jobs, queue):
    @jobs.job("io", kind="mail")
    def mail(to: str, subject: str = "hi"): ...

    mail.options(priority=5, tenant="t", run_in="1m", key="k").enqueue("ann")
    queue.assert_enqueued(mail.call(to="ann"), times=1)
    queue.assert_enqueued(mail.options(priority=5, run_in="1m").call("ann"))
    queue.assert_not_enqueued(mail.call("bo"))
    for wrong in (
        mail.call("ann", "other"),
        mail.options(priority=6).call("ann"),
        mail.options(tenant="u").call("ann"),
        mail.options(run_in="2m").call("ann"),
        mail.options(key="l").call("ann"),
        mail.options(pool="cpu").call("ann") if "cpu" in jobs._gateway.pools else None,
    ):
        if wrong is not None:
            with pytest.raises(AssertionError, match="enqueued 0 times"):
                queue.assert_enqueued(wrong)
    with pytest.raises(AssertionError) as told:
        queue.assert_enqueued(mail.call("bo"))
    assert str(told.value) == (
        'mail{"to":"bo"} was enqueued 0 times, expected at least once; there are:\n'
        '  job 1: pending mail{"to":"ann"}'
    )
    with pytest.raises(AssertionError, match="nothing should have been enqueued"):
        queue.assert_not_enqueued(mail)
    with pytest.raises(AssertionError, match="expected 2 times"):
        queue.assert_enqueued(mail.call("ann"), times=2)


def test_inline_runs_jobs_at_once_and_raises_what_they_raise(jobs):
    @jobs.job("cpu", kind="outer")
    def outer() -> str:
        inner.enqueue()
        return "outer"

    @jobs.job("cpu", kind="inner")
    def inner() -> None:
        ran.append("inner")

    @jobs.job("cpu", kind="bad")
    def bad() -> None:
        raise LookupError("mine")

    ran = []
    with Queue(inline=True) as queue:
        queue.serve(jobs)
        assert outer.enqueue().result() == "outer"
        assert ran == ["inner"]
        with pytest.raises(LookupError, match="mine"):
            bad.enqueue()
        late = outer.options(run_in="1h").enqueue()
        assert late.state == "pending"


def test_a_failure_can_be_raised_where_the_test_runs_jobs(jobs, queue):
    @jobs.job("cpu", kind="bad", max_attempts=1)
    def bad() -> None:
        raise LookupError("mine")

    job = bad.enqueue()
    with pytest.raises(LookupError, match="mine"):
        queue.run_due(raises=True)
    assert job.state == "dead"


def test_a_queue_that_would_go_on_for_ever_is_refused(jobs, queue, monkeypatch):
    monkeypatch.setattr("jobpool.testing.queue.ATTEMPTS_MAX", 50)

    @jobs.job("cpu", kind="again")
    def again():
        again.enqueue()

    again.enqueue()
    with pytest.raises(
        UsageError, match="over 50 attempts have run, the last one of again"
    ):
        queue.run_due()


def test_a_handler_cannot_run_the_queue(jobs, queue):
    @jobs.job("cpu", kind="nested", max_attempts=1)
    def nested():
        queue.run_due()

    nested.enqueue()
    with pytest.raises(UsageError, match="a handler cannot run others"):
        queue.run_due(raises=True)


def test_two_applications_with_one_kind_must_be_told_apart():
    first, second = JobPool(), JobPool()
    for pool in (first, second):
        pool.job("cpu", kind="same")(lambda: None)
    with Queue() as queue, pytest.raises(UsageError, match="declared by several"):
        queue.run_due()
    with Queue() as queue:
        queue.serve(first)
        assert queue.run_due() == []


def test_outside_of_it_the_store_is_the_applications_own(jobs, tmp_path, monkeypatch):
    monkeypatch.setenv("JOBPOOL_STORE", f"sqlite:///{tmp_path}/jobpool.db")

    @jobs.job("cpu", kind="x")
    def x(): ...

    with Queue():
        x.enqueue()
    assert not list(tmp_path.iterdir())
    x.enqueue()
    assert (tmp_path / "jobpool.db").exists()
    jobs.close()


def test_time_is_a_clock_that_the_test_may_bring(jobs):
    clock = FakeClock(utc_ms=0)
    with Queue(clock) as queue:
        queue.serve(jobs)
        queue.advance("1h")
    assert clock.utc_ms() == 3_600_000


def test_an_attempt_is_in_the_trace_of_its_job(jobs, queue):
    """So is what it enqueues, and the hook that hears of its job's death."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    seen = []

    @jobs.job("io", kind="below")
    def below():
        seen.append(current().traceparent)

    @jobs.job("io", kind="above")
    def above():
        seen.append(current().traceparent)
        below.enqueue()
        raise GiveUp("no")

    @jobs.on_dead
    def dead(_job):
        seen.append(current().traceparent)

    above.options(trace=trace).enqueue()
    queue.drain()
    assert seen == [trace] * 3
    below.enqueue()
    queue.drain()
    assert seen[3:] == [None]


ELSEWHERE = """
import sys
GONE = ("fcntl", "resource", "termios", "pwd", "grp", "pty", "_posixsubprocess")
sys.modules |= dict.fromkeys(GONE)
from jobpool import JobPool
from jobpool.testing import Queue
jobs = JobPool()
@jobs.job("cpu", kind="x", retry={ValueError: ["1s"]})
def x(n: int) -> int:
    if n:
        return n
    raise ValueError("no")
with Queue() as queue:
    job = x.enqueue(3)
    x.enqueue(0)
    queue.fail_next("killed")
    queue.drain()
    print(job.result())
"""


def test_it_needs_nothing_of_linux():
    """Where the modules of POSIX are missing, as on Windows, it runs all the same."""
    said = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=False
    )
    assert said.stdout == "3\n", said.stderr
