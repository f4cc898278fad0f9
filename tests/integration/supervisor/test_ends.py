"""TERM and QUIT end a supervisor in time, whatever state it is in.

These are real processes in a few of the states. All states meet all signals in
`unit/supervisor/machine/test_shutdown.py`; a store that several hosts share is covered
by `test_shared_store.py`.
"""

import contextlib
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from support.site.supervising import PATIENCE_S, Site, exhaust
from support.waiting import Running, wait_until

APP = """
@jobs.job("cpu", kind="held", retry=AT_ONCE)
def held(gate: str):
    hold(gate)
    witness("ended")
"""
LOADS_FOR_EVER = """
import pathlib, time
pathlib.Path(__file__).with_name("loading").touch()
time.sleep(600)
"""
WAITS_AT_GATE = """
import pathlib, time
pathlib.Path(__file__).with_name("loading").touch()
while not pathlib.Path(__file__).with_name("go").exists():
    time.sleep(0.005)
"""
DRAIN_S = 1.0
END_S = DRAIN_S + 2.0
BUSY_MACHINE_S = 2.0
"""Extra time beside other tests. Before the fix it took 20 s, or forever."""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path / "site", APP) as site:
        yield site


def ends_in_time(supervisor, signum):
    """Send a signal and return the exit code, with a deadline."""
    with Running() as running:
        code = supervisor.stop(signum)
        assert running.ran_s() < END_S + BUSY_MACHINE_S, supervisor.said()
    return code


def test_an_end_that_cannot_be_stored_is_given_up_and_run_again(site):
    """The exit code is 1, the job stays leased, and the next start takes it back."""
    supervisor = site.start("cpu=2", "--drain", f"{DRAIN_S:g}s")
    job = site.add("held", {"gate": "open"})
    site.wait_begun(job)
    path = site.folder / "jobpool.db"
    other = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    with contextlib.closing(other):
        other.execute("BEGIN EXCLUSIVE")  # like another program's long transaction
        site.open_gate("open")
        wait_until(lambda: site.witnesses("ended"), PATIENCE_S, "the handler's end")
        assert ends_in_time(supervisor, signal.SIGTERM) == 1
    assert supervisor.wait_event("supervisor_stopped")["leases_held"] >= 1
    site.wait_nobody()
    assert site.job(job).state == "leased"
    site.start("cpu=2")
    done = site.finish(job)
    assert (done.state, done.attempt) == ("succeeded", 2)
    assert (done.failures, done.crashes) == (0, 0)


def test_a_reload_that_never_ends_does_not_delay_an_end(site):
    """Its zygotes load forever; they are ended with the others."""
    supervisor = site.start("cpu=2", "--drain", f"{DRAIN_S:g}s")
    (site.folder / "jobs.py").write_text(LOADS_FOR_EVER)
    supervisor.send(signal.SIGHUP)
    wait_until((site.folder / "loading").exists, PATIENCE_S, "the second import")
    assert ends_in_time(supervisor, signal.SIGTERM) == 0
    site.wait_nobody()
    assert site.store.open_runs() == []


def test_a_frozen_zygote_does_not_delay_an_end(site):
    """It makes no child and does not end by itself.

    The supervisor waits for neither.
    """
    supervisor = site.start("cpu=2", "--drain", f"{DRAIN_S:g}s")
    wait_until(lambda: len(site.children()) == 2, PATIENCE_S, "the children")
    for pid in site.zygotes(supervisor):
        os.kill(pid, signal.SIGSTOP)
    for pid in site.children():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not site.children(), PATIENCE_S, "the children's end")
    assert ends_in_time(supervisor, signal.SIGQUIT) == 0
    site.wait_nobody()
    assert site.store.open_runs() == []


def test_a_lack_of_descriptors_does_not_delay_an_end(site):
    """The supervisor cannot search for a dead child's leftovers.

    Its zygote does in the end.
    """
    supervisor = site.start("cpu=2", "--drain", f"{DRAIN_S:g}s")
    job = site.add("held", {"gate": "never"})
    pid = site.wait_begun(job).pid
    exhaust(supervisor)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), PATIENCE_S, "its death")
    assert ends_in_time(supervisor, signal.SIGTERM) in {0, 1}
    site.wait_nobody()
    site.open_gate("never")
    site.start("cpu=2")
    assert site.finish(job).state == "succeeded"


@pytest.mark.parametrize("preload", [True, False])
def test_a_zygote_that_is_killed_while_it_loads_is_started_again(site, preload):
    """A SIGKILL from outside is not the application's fault."""
    app = (site.folder / "jobs.py").read_text()
    (site.folder / "jobs.py").write_text(WAITS_AT_GATE + app)
    config = f"[pools.cpu]\npreload = {str(preload).lower()}\n"
    (site.folder / "jobpool.toml").write_text(config)
    supervisor = site.launch("--pools", "cpu=2", "--log-format", "json")
    wait_until((site.folder / "loading").exists, PATIENCE_S, "the import")
    (zygote,) = site.zygotes(supervisor)
    os.kill(zygote, signal.SIGKILL)
    assert "was killed" in supervisor.wait_event("zygote_failed")["reason"]
    site.open_gate("go")
    supervisor.wait_ready()
    assert supervisor.stop() == 0
