"""A store in trouble, and a shared store: kills stay on time, nothing is lost."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from dataclasses import dataclass

import pytest

from jobpool.errors import StoreFull
from jobpool.store.records.operating import Filter
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import Running, wait_until

APP = """
@jobs.job("cpu", kind="work")
def work(seconds: float = 0.0):
    witness()
    time.sleep(seconds)
    return os.getppid()


@jobs.job("cpu", kind="hold")
def wait_at(gate: str, size: int = 10):
    hold(gate)
    for _ in range(20):
        print("y" * 1000)  # more than the log file's last page has room for
    (HERE / f"{gate}.passed").touch()
    return "x" * size


@jobs.job("cpu", kind="busy", timeout="1.5s", max_attempts=1)
def busy():
    witness()
    try:
        while True:
            pass
    finally:
        witness("ended")


@jobs.job("cpu", kind="parent", max_attempts=1)
def parent(gate: str):
    hold(gate)
    witness("asks")
    return work.enqueue().id


@jobs.job("io", kind="talk", max_attempts=1)
def talk():
    print("hello")
"""
CONFIG = """
[pools.io]
size = 1
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP, config=CONFIG) as site:
        yield site


@contextlib.contextmanager
def locked(site):
    """Hold another program's write transaction on the database."""
    path = site.folder / "jobpool.db"
    stranger = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_S)
    stranger.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        stranger.execute("ROLLBACK")
        stranger.close()


def test_two_supervisors_share_one_file(site):
    """Both work, and no job is run by both."""
    first, second = site.start("cpu=1"), site.start("cpu=1")
    ids, by = [], Counter()

    def both_have_worked():
        more = site.add_many("work", [{"seconds": 0.003}] * 200)
        by.update(site.result(one) for one in more)
        ids.extend(more)
        return set(by) == {first.pid, second.pid}

    wait_until(both_have_worked, PATIENCE_S, "work of both")
    assert Counter(one.job for one in site.witnesses()) == dict.fromkeys(ids, 1)
    assert first.stop() == 0
    assert site.result(site.add("work")) == second.pid
    for supervisor in (first, second):
        assert supervisor.events("run_reclaimed") == []
        assert supervisor.events("stale_settlement") == []


@dataclass
class Ordeal:
    """What was seen while another program kept the database locked for seconds."""

    site: Site
    hog: int
    held: int
    asking: int
    killed_s: float = 0.0
    stood_s: float = 0.0
    """So long this machine ran nothing meanwhile."""


@pytest.fixture(scope="module")
def ordeal(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("locked"), APP, config=CONFIG) as site:
        supervisor = site.start("cpu=3")
        held = site.add("hold", {"gate": "open"})
        asking = site.add("parent", {"gate": "open"})
        with Running() as running:  # from when its time limit counts
            hog = site.add("busy")
            ordeal = Ordeal(site, hog, held, asking)
            children = [site.wait_begun(one).pid for one in (held, asking, hog)]
            from_s = time.monotonic()
            with locked(site):
                site.open_gate("open")
                wait_until(lambda: not is_alive(children[-1]), PATIENCE_S, "the kill")
                ordeal.killed_s = running.ran_s(from_s)
                ordeal.stood_s = running.stood_ms() / 1000
                supervisor.wait_event("store_trouble")
        yield ordeal
        supervisor.wait_event("store_back")
        assert site.finish(site.add("work")).state == "succeeded"
        assert supervisor.stop() == 0


def test_kills_are_on_time_while_the_database_is_locked(ordeal):
    """The loop never waits for the disk; its changes are written later."""
    assert ordeal.killed_s < 4.0, "SQLite waits for 5 s, and the loop with it"
    (attempt,) = ordeal.site.attempts(ordeal.hog)
    assert attempt.outcome == "timed_out"
    assert attempt.duration_s - ordeal.stood_s < 4.0
    assert ordeal.site.finish(ordeal.hog).attempt == 1


def test_an_end_during_a_lock_is_stored_once(ordeal):
    """A result waits for the store; the handler does not run again for it."""
    job = ordeal.site.finish(ordeal.held)
    assert (job.state, job.attempt) == ("succeeded", 1)
    runs = [one for one in ordeal.site.witnesses() if one.job == ordeal.held]
    assert len(runs) == 1


def test_an_enqueue_during_a_lock_is_stored_or_refused(ordeal):
    """A handler gets the job's id or StoreUnavailable, and either is true."""
    job = ordeal.site.finish(ordeal.asking)
    ids = {one.id for one in ordeal.site.store.find(Filter())}
    made = ids - {ordeal.hog, ordeal.held, ordeal.asking}
    if job.state == "succeeded":
        assert made == {json.loads(job.result)}
    else:
        (attempt,) = ordeal.site.store.attempts(ordeal.asking)
        assert attempt.error_class == "jobpool.errors.StoreUnavailable"
        assert made == set()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 6 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path):
    """Use up all space on a disk."""
    with (path / "ballast").open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass


@pytest.mark.parametrize("log_is_elsewhere", [True, False])
def test_a_result_waits_for_room_on_a_full_disk(small_disk, log_is_elsewhere):
    """Nothing is lost: it is written when there is room again, and so is the log."""
    logs = small_disk.parent if log_is_elsewhere else small_disk
    gate, passed = small_disk.parent / "gate", small_disk.parent / "gate.passed"
    with Site(small_disk, APP, config=CONFIG, logs=logs) as site:
        supervisor = site.start("cpu=2")
        held = site.add("hold", {"gate": str(gate), "size": 900_000})
        site.wait_begun(held)
        fill(small_disk)
        with pytest.raises(StoreFull):
            site.add_many("work", [None] * 5000)
        gate.touch()
        if log_is_elsewhere:
            supervisor.wait_event("store_trouble")
        else:
            wait_until(passed.exists, PATIENCE_S, "the handler's end")
            time.sleep(0.3)  # for the log's thread, of which nothing else is seen
        assert site.job(held).state == "leased"
        assert supervisor.process.poll() is None
        (small_disk / "ballast").unlink()
        job = site.finish(held)
        assert (job.state, job.attempt, len(job.result)) == ("succeeded", 1, 900_002)
        assert len(site.witnesses()) == 1
        assert site.finish(site.add("work")).state == "succeeded"
        if log_is_elsewhere:
            supervisor.wait_event("store_back")
        supervisor.wait_event("job_succeeded", kind="work")
        assert supervisor.stop() == 0


@pytest.mark.parametrize("is_new", [True, False])
def test_a_disk_that_is_full_at_the_start_is_waited_for(small_disk, is_new):
    """With an existing store, and with one that is still to be created."""
    with Site(small_disk, APP, config=CONFIG, logs=small_disk.parent) as site:
        if not is_new:
            site.add("work")
        fill(small_disk)
        supervisor = site.launch("--pools", "cpu=1", "--log-format", "json")
        assert "room" in supervisor.wait_event("store_trouble")["error"]
        (small_disk / "ballast").unlink()
        supervisor.wait_ready()
        assert supervisor.wait_event("store_back")
        assert site.finish(site.add("work")).state == "succeeded"
        assert supervisor.stop() == 0


def test_a_deleted_store_is_an_alarm_and_no_restart_loop(site):
    """Its jobs are gone with it; nothing is started again and again."""
    supervisor = site.start("cpu=1")
    held = site.add("hold", {"gate": "open"})
    site.wait_begun(held)
    for path in site.folder.glob("jobpool.db*"):
        if path.is_file():
            path.unlink()
    site.open_gate("open")
    trouble = supervisor.wait_event("store_trouble")
    assert trouble["level"] == "error"
    assert "jobpool.db" in trouble["error"]
    supervisor.send(signal.SIGTERM)
    supervisor.wait_event("supervisor_draining")
    supervisor.send(signal.SIGTERM)
    assert supervisor.wait_exit() == 1
    assert len(site.witnesses()) == 1
    assert not (site.folder / "jobpool.db").exists()
    site.wait_nobody()
