"""A supervisor without a spare descriptor goes on, and catches up later."""

import os
import signal
from pathlib import Path

import pytest

from support.site.supervising import PATIENCE_S, Site, exhaust
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="hold", retry=AT_ONCE)
def hold(gate):
    hold_(gate)

@jobs.job("cpu", kind="family", retry=AT_ONCE, timeout="10s")
def family(gate):
    # Both are to be there before the time limit, if this machine stands still, too.
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    hold_(gate)
"""

REFUSING = """
import threading

KEEPERS = {"jobpool-housekeeping", "jobpool-reclaim", "jobpool-renewal"}
refused = []
start = threading._start_new_thread

def reluctant(function, *args):
    thread = getattr(function, "__self__", None)
    keeps_run = getattr(thread, "name", "") in KEEPERS
    if keeps_run and refused.count(thread.name) < 2:
        refused.append(thread.name)
        raise RuntimeError("can't start new thread")
    return start(function, *args)

threading._start_new_thread = reluctant
"""
"""Every thread that keeps a run is refused twice, as by a full table of processes."""


@pytest.fixture
def site(tmp_path):
    app = "hold_ = hold\n" + APP
    with Site(tmp_path / "site", app) as site:
        yield site


def is_gone(pid):
    return not Path(f"/proc/{pid}").exists()


def test_a_childs_death_is_handled_without_a_spare_descriptor(site):
    """It is reported once its tree can be searched; the other slot's job goes on."""
    supervisor = site.start("cpu=2")
    one, other = (site.add("hold", {"gate": "open"}) for _ in range(2))
    pids = [site.wait_begun(job).pid for job in (one, other)]
    give_back = exhaust(supervisor)
    os.kill(pids[0], signal.SIGKILL)
    wait_until(lambda: is_gone(pids[0]), PATIENCE_S, "the dead child is reaped")
    supervisor.wait_event("job_ended", id=one)
    give_back()
    site.open_gate("open")
    assert (site.finish(one).crashes, site.job(one).attempt) == (1, 2)
    assert (site.finish(other).crashes, site.job(other).attempt) == (0, 1)
    assert supervisor.process.poll() is None


def test_a_time_limit_holds_without_a_descriptor(site):
    """The child is killed at once; its descendants are found when that is possible."""
    supervisor = site.start("cpu=1")
    job = site.add("family", {"gate": "never"}, max_attempts=1)
    pid = site.wait_begun(job).pid
    give_back = exhaust(supervisor)
    wait_until(lambda: is_gone(pid), PATIENCE_S, "the child is killed and reaped")
    give_back()
    assert (site.finish(job).state, site.job(job).outcome) == ("dead", "timed_out")
    assert supervisor.process.poll() is None
    supervisor.stop()
    site.wait_nobody()


def test_a_supervisor_without_a_free_thread_at_its_start_tries_again(site, tmp_path):
    """The store is not at fault, and a thread may be available a little later."""
    (tmp_path / "sitecustomize.py").write_text(REFUSING)
    supervisor = site.start("cpu=1", env={"PYTHONPATH": str(tmp_path)})
    job = site.add("hold", {"gate": "open"})
    site.open_gate("open")
    assert site.finish(job).state == "succeeded"
    trouble = supervisor.wait_event("store_trouble")
    assert "another thread" in trouble["error"]
    assert supervisor.stop() == 0
