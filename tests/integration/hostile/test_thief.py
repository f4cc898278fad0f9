"""A handler that takes what belongs to the supervisor: tickets, marks, directories.

It may break whatever its user can reach, but no other job is charged for that.
"""

import contextlib
import os
import shutil
import signal
import time

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.sandbox.runs.marks import MARK_BYTES
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
import sys
from jobpool.sandbox.protocol.messages import Done, encode


def own_job():
    frame = sys._getframe()
    while not (frame.f_code.co_name == "_attempt" and "job" in frame.f_locals):
        frame = frame.f_back
    return frame.f_locals["job"]


def tickets():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                flags = open(f"/proc/self/fdinfo/{name}").read().split()[3]
                if int(flags, 8) & os.O_NONBLOCK:
                    yield int(name)
        except OSError:
            continue


@jobs.job("cpu", kind="quick", max_attempts=1)
def quick():
    return 1


@jobs.job("cpu", kind="thief", max_attempts=1)
def thief(dies: bool):
    if not (HERE / "go").exists():
        return "too early"
    for fd in list(tickets()):
        try:
            os.read(fd, 4096)
        except BlockingIOError:
            continue
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return "stolen"


@jobs.job("cpu", kind="robber", max_attempts=1)
def robber():
    if not (HERE / "go").exists():
        return "too early"
    job = own_job()
    (own,) = tickets()
    said = encode(Done(job.seq, job.token, True, b'"forged"', 0.0, 0.0, 1, 1))
    for name in os.listdir("/proc/self/fd"):
        if int(name) != own and os.path.exists(f"/proc/self/fd/{name}"):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), said)
    while True:
        try:
            os.read(own, 8)
        except BlockingIOError:
            time.sleep(0.001)
        else:
            os.kill(os.getpid(), signal.SIGKILL)


@jobs.job("cpu", kind="returns", max_attempts=1)
def returns():
    witness()
    (own,) = tickets()
    ticket = own_job().seq.to_bytes(8, "little")
    for way in (lambda: os.open(f"/proc/self/fd/{own}", os.O_WRONLY), lambda: own):
        try:
            os.write(way(), ticket)
        except OSError:
            continue
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.job("cpu", kind="wiper", max_attempts=1)
def wiper():
    while not (HERE / "gate").exists():
        for mark in HERE.glob("jobpool.db.run/*/mark.*"):
            with mark.open("r+b", buffering=0) as file:
                file.write(bytes(mark.stat().st_size))
        time.sleep(0.05)


@jobs.job("io", kind="held", max_attempts=1)
def held():
    hold("gate")
    return "well"
"""


@pytest.mark.parametrize("dies", [False, True])
def test_no_other_job_is_charged_for_stolen_tickets(tmp_path, dies):
    """Jobs sent ahead of a thief still run on their first counted attempt."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        for kind, payload in (("quick", {}), ("thief", {"dies": False})):
            site.finish_all(site.add_many(kind, [payload] * 20))  # they prove fast
        site.open_gate("go")
        thief = site.add("thief", {"dies": dies})
        others = site.add_many("quick", [{}] * 8)
        site.add("thief", {"dies": dies})
        others += site.add_many("quick", [{}] * 8)
        for job in site.finish_all(others):
            assert (job.state, job.failures, job.crashes) == ("succeeded", 0, 0)
            assert job.interruptions <= 2
        assert site.finish(thief).state is (
            JobState.DEAD if dies else JobState.SUCCEEDED
        )
        assert supervisor.stop() == 0


def test_a_ticket_cannot_be_put_back(tmp_path):
    """A job that has begun and dies is charged.

    It cannot pretend that it never began.
    """
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        job = site.finish(site.add("returns"))
        assert (job.state, job.crashes) == (JobState.DEAD, 1)
        assert len(site.witnesses()) == 1
        assert supervisor.stop() == 0


def test_no_other_job_is_charged_for_a_handler_that_reports_its_end_and_then_dies(
    tmp_path,
):
    """A handler that reports its own end can take the next ticket, but not its mark."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        for kind in ("quick", "robber"):  # they prove fast
            site.finish_all(site.add_many(kind, [{}] * 20))
        site.open_gate("go")
        site.add("robber")
        for job in site.finish_all(site.add_many("quick", [{}] * 4)):
            assert (job.state, job.failures, job.crashes) == ("succeeded", 0, 0)
            assert job.interruptions <= 1
        assert supervisor.stop() == 0


def test_no_job_is_ended_for_marks_that_another_wipes_out(tmp_path):
    """If the previous mark is missing as well, a missing mark proves no theft."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        site.open_gate("gate")
        site.finish(site.add("held", pool="io"))
        (site.folder / "gate").unlink()
        wiper, job = site.add("wiper"), site.add("held", pool="io")
        began_s = time.monotonic()
        wait_until(lambda: time.monotonic() > began_s + 3, 5, "several looks")
        site.open_gate("gate")
        assert site.result(job) == "well"
        assert (site.job(job).attempt, site.job(job).interruptions) == (1, 0)
        assert site.finish(wiper).interruptions == 0
        assert supervisor.stop() == 0


@pytest.mark.parametrize("how", ["cut", "grown", "gone", "fifo", "directory"])
def test_no_job_is_charged_for_a_damaged_mark(tmp_path, how):
    """The slot's job runs to its end, and the next child has a mark again."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        job = site.add("held", pool="io")
        site.finish(site.add("quick"))  # the other pool's child is there as well
        site.wait_begun(job)
        marks = list(site.folder.glob("jobpool.db.run/*/mark.*"))
        for mark in marks:
            spoil(mark, how)
        child = set(site.children())
        site.wait_begun(job)
        site.open_gate("gate")
        assert site.result(job) == "well"
        found = site.job(job)
        assert (found.attempt, found.failures, found.crashes) == (1, 0, 0)
        for pid in child:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(set(site.children()) - child) == 2, PATIENCE_S, "others")
        assert site.result(site.add("held", pool="io")) == "well"
        wait_until(  # the other pool's child may be on its way still
            lambda: {mark.stat().st_size for mark in marks} == {MARK_BYTES},
            PATIENCE_S,
            "whole marks",
        )
        assert supervisor.stop() == 0


def spoil(mark, how):
    """Damage a mark file as a handler of the same user can."""
    if how == "cut":
        os.truncate(mark, 0)
    elif how == "grown":
        os.truncate(mark, 1 << 30)
    else:
        mark.unlink()
        if how == "fifo":
            os.mkfifo(mark)
        elif how == "directory":
            mark.mkdir()


def test_without_its_run_directory_a_supervisor_ends_and_says_why(tmp_path):
    """It could no longer be proven dead: running jobs end well, the rest waits."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        job = site.add("held", pool="io")
        site.wait_begun(job)
        pids = wait_until(
            lambda: len(found := site.children()) == 2 and found, PATIENCE_S, "both"
        )
        (run,) = site.folder.glob("jobpool.db.run/*/lock")
        shutil.rmtree(run.parent)
        idle = [pid for pid in pids if pid != site.wait_begun(job).pid]
        with contextlib.suppress(ProcessLookupError):  # it drains already
            os.kill(idle[0], signal.SIGKILL)
        supervisor.wait_event("supervisor_draining")
        site.open_gate("gate")
        assert site.result(job) == "well"
        assert supervisor.wait_exit() == 0
        (said,) = supervisor.events("supervisor_draining")
        assert "run directory" in said["reason"]
