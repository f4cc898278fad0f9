"""A handler that takes what is the supervisor's: tickets, marks, the run directory.

It may break what it can reach as its user, but no other job is charged for that.
"""

import os
import shutil
import signal

import pytest

from jobpool.core.job import JobState
from supervising import PATIENCE_S, Site
from waiting import wait_until

APP = """
def tickets():
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
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


@jobs.job("io", kind="held", max_attempts=1)
def held():
    hold("gate")
    return "well"
"""


@pytest.mark.parametrize("dies", [False, True])
def test_nobody_pays_for_stolen_tickets(tmp_path, dies):
    """Jobs that were sent ahead of a thief run on, on their first counted attempt."""
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


@pytest.mark.parametrize("how", ["cut", "grown", "gone", "fifo", "directory"])
def test_nobody_pays_for_a_spoilt_mark(tmp_path, how):
    """Who runs in the slot goes on to its end, and the next child has a mark again."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        job = site.add("held", pool="io")
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
        assert {mark.stat().st_size for mark in marks} == {4096}
        assert supervisor.stop() == 0


def spoil(mark, how):
    """Do to a mark file what a handler of the same user can."""
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
    """It could not be proven dead any more: what runs ends well, the rest waits."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        job = site.add("held", pool="io")
        site.wait_begun(job)
        pids = site.children()
        (run,) = site.folder.glob("jobpool.db.run/*/lock")
        shutil.rmtree(run.parent)
        idle = [pid for pid in pids if pid != site.wait_begun(job).pid]
        os.kill(idle[0], signal.SIGKILL)
        supervisor.wait_event("supervisor_draining")
        site.open_gate("gate")
        assert site.result(job) == "well"
        assert supervisor.wait_exit() == 0
        (said,) = supervisor.events("supervisor_draining")
        assert "run directory" in said["reason"]
