"""Orderly ends: a drain lets jobs finish, a stop hands them back."""

import signal
import time

import pytest

from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="hold")
def wait_at(gate: str):
    hold(gate)
    return current().stopping


@jobs.job("io", kind="hold.io")
def wait_at_io(gate: str):
    hold(gate)


@jobs.job("cpu", kind="stopping")
def stopping():
    witness()
    began = time.monotonic()
    while not current().stopping:
        time.sleep(0.005)
    return time.monotonic() - began


@jobs.job("cpu", kind="family")
def family():
    for _ in range(3):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    hold("never")


@jobs.job("cpu", kind="quick")
def quick():
    witness("quick")


@jobs.job("cpu", kind="more", max_attempts=1)
def more():
    hold("open")
    return quick.enqueue().id
"""
CONFIG = """
[pools.io]
size = 1
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP, config=CONFIG) as site:
        yield site


def ends_clean(site, supervisor, *, how, handed_back=0):
    """Expect what every orderly end has in common."""
    assert supervisor.wait_exit() == 0, supervisor.said()
    stopped = supervisor.wait_event("supervisor_stopped")
    assert (stopped["how"], stopped["leases_held"]) == (how, 0)
    assert stopped["handed_back"] == handed_back
    site.wait_nobody()
    assert list((site.folder / "jobpool.db.run").iterdir()) == []
    assert site.store.open_runs() == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains(site, signum):
    """Running jobs may finish and can see it; nothing new is started."""
    supervisor = site.start("cpu=1,io=1")
    running = site.add("stopping")
    site.wait_begun(running)
    waiting = site.add_many("quick", [None] * 5)
    supervisor.send(signum)
    draining = supervisor.wait_event("supervisor_draining")
    assert (draining["reason"], draining["running"]) == (signal.Signals(signum).name, 1)
    assert site.finish(running).state == "succeeded"
    ends_clean(site, supervisor, how="drained")
    assert [site.job(one).state for one in waiting] == ["runnable"] * 5
    assert [site.job(one).attempt for one in waiting] == [0] * 5
    assert site.witnesses("quick") == []


def test_a_drain_waits_for_a_handler_that_ignores_it(site):
    """It may use the whole drain window."""
    supervisor = site.start("cpu=1,io=1")
    running = site.add("hold", {"gate": "open"})
    site.wait_begun(running)
    supervisor.send(signal.SIGTERM)
    supervisor.wait_event("supervisor_draining")
    assert supervisor.process.poll() is None
    site.open_gate("open")
    assert site.result(running) is True
    ends_clean(site, supervisor, how="drained")


@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGQUIT,),
    ],
)
def test_the_second_signal_or_quit_stops_at_once(site, signals):
    """Running jobs are killed with their process trees and go back without penalty."""
    supervisor = site.start("cpu=2,io=1")
    ids = [site.add("family"), site.add("hold", {"gate": "never"})]
    pids = [site.wait_begun(one).pid for one in ids]
    began = time.monotonic()
    for signum in signals:
        supervisor.send(signum)
        supervisor.wait_event("supervisor_draining")
    ends_clean(site, supervisor, how="stopped", handed_back=2)
    assert time.monotonic() - began < PATIENCE_S / 3
    assert [pid for pid in pids if is_alive(pid)] == []
    for job in map(site.job, ids):
        assert job.state in ("pending", "runnable")
        assert (job.interruptions, job.failures, job.crashes) == (1, 0, 0)
        (attempt,) = site.store.attempts(job.id)
        assert attempt.outcome == "interrupted"
        assert "jobpool stopped" in attempt.reason


def test_interrupted_jobs_run_at_the_next_start(site):
    """They are due at once: an interruption has no back-off."""
    supervisor = site.start("cpu=1,io=1")
    job_id = site.add("hold", {"gate": "open"})
    site.wait_begun(job_id)
    supervisor.send(signal.SIGQUIT)
    ends_clean(site, supervisor, how="stopped", handed_back=1)
    site.open_gate("open")
    site.start("cpu=1,io=1")
    job = site.finish(job_id)
    assert (job.state, job.attempt, job.interruptions) == ("succeeded", 2, 1)


def test_each_pool_has_its_own_drain_window(site):
    """At its end the pool's remaining jobs are killed and handed back."""
    supervisor = site.start("cpu=1,io=1", "--drain", "cpu=60s,io=300ms")
    long, short = (
        site.add("hold", {"gate": "open"}),
        site.add("hold.io", {"gate": "never"}, pool="io"),
    )
    for job_id in (long, short):
        site.wait_begun(job_id)
    supervisor.send(signal.SIGTERM)
    (attempt,) = site.attempts(short)
    assert (attempt.outcome, attempt.reason) == (
        "interrupted",
        "killed because jobpool stopped: drain window over",
    )
    assert supervisor.process.poll() is None
    assert site.job(long).state == "leased"
    site.open_gate("open")
    assert site.finish(long).state == "succeeded"
    ends_clean(site, supervisor, how="drained", handed_back=1)


def test_a_draining_handler_may_still_enqueue(site):
    """Its jobs are stored durably, for the next start."""
    supervisor = site.start("cpu=1,io=1")
    job_id = site.add("more")
    site.wait_begun(job_id)
    supervisor.send(signal.SIGTERM)
    supervisor.wait_event("supervisor_draining")
    site.open_gate("open")
    made = site.result(job_id)
    ends_clean(site, supervisor, how="drained")
    assert site.job(made).state == "runnable"


def test_an_idle_supervisor_ends_at_once(site):
    """There is nothing to wait for."""
    supervisor = site.start("cpu=2,io=2")
    supervisor.send(signal.SIGTERM)
    ends_clean(site, supervisor, how="drained")


def test_a_signal_while_starting_ends_the_start(site):
    """Also before the application is loaded; nothing is left behind."""
    (site.folder / "jobs.py").write_text(
        "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(60)\n"
    )
    supervisor = site.launch("--pools", "cpu=1", "--log-format", "json")
    loading = site.folder / "loading"
    wait_until(loading.exists, PATIENCE_S, "the application's import")
    supervisor.send(signal.SIGTERM)
    ends_clean(site, supervisor, how="drained")


def test_burst_runs_what_is_due_and_ends(site):
    """Jobs due later, and those that wait for another attempt, are left alone."""
    ids = site.add_many("quick", [None] * 50)
    future = site.add("quick", delay_ms=3_600_000)
    supervisor = site.start("cpu=2,io=1", "--burst")
    ends_clean(site, supervisor, how="drained")
    assert {site.job(one).state for one in ids} == {"succeeded"}
    assert site.job(future).state == "pending"
