"""A pool with a range follows the load, within its range, and harms no job."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from jobpool.supervisor.machine.pools.scaling import GREW
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="hold", max_attempts=1)
def wait_at(gate: str):
    hold(gate)


@jobs.job("cpu", kind="pid")
def pid():
    return os.getpid()
"""
CONFIG = """
[pools.cpu]
idle_shrink = "1s"
scale_on = "backlog" # not "cpu": other tests keep the processors busy
memory = "64MiB"
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, APP, config=CONFIG) as site:
        yield site


def size_now(supervisor):
    resized = supervisor.events("pool_resized", pool="cpu")
    return resized[-1]["size_to"] if resized else 1


def test_a_pool_grows_while_jobs_wait_and_shrinks_when_idle(site):
    """It grows up to its range, one job per child, and ends idle children later."""
    supervisor = site.start("cpu=1..4")
    assert len(site.children()) <= 1
    ids = [site.add("hold", {"gate": "open"}) for _ in range(6)]
    wait_until(lambda: len(site.witnesses()) == 4, PATIENCE_S, "four at once")
    wait_until(lambda: size_now(supervisor) == 4, PATIENCE_S, "the size in the log")
    assert len({one.pid for one in site.witnesses()}) == 4
    assert len([one for one in ids if site.job(one).state == "runnable"]) == 2
    site.open_gate("open")
    for job in site.finish_all(ids):
        assert (job.state, job.attempt) == ("succeeded", 1)
    wait_until(lambda: size_now(supervisor) == 1, PATIENCE_S, "the smallest size")
    wait_until(lambda: len(site.children()) == 1, PATIENCE_S, "one child")
    assert site.result(site.add("pid")) in site.children()
    assert supervisor.events("alarm") == []
    sizes = [e["size_to"] for e in supervisor.events("pool_resized")]
    assert max(sizes) == 4
    assert sizes[-3:] == [3, 2, 1]


def test_a_fixed_size_stays(site):
    """Without a range nothing is resized, however many jobs wait."""
    supervisor = site.start("cpu=2")
    ids = [site.add("hold", {"gate": "open"}) for _ in range(6)]
    wait_until(lambda: len(site.witnesses()) == 2, PATIENCE_S, "two at once")
    site.open_gate("open")
    site.finish_all(ids)
    assert supervisor.events("pool_resized") == []
    assert len({one.pid for one in site.witnesses()}) == 2


HOLD_IO = """
@jobs.job("io", kind="hold", max_attempts=1)
def wait_at(gate: str):
    hold(gate)
"""
FOLLOWS = """
[pools.io]
memory = "64MiB"
scale_on = "{scale_on}"
age_target = "2s"
"""


@contextmanager
def busy_processors():
    """Keep every processor busy meanwhile."""
    spin = (sys.executable, "-c", "while True: pass")
    spinning = [subprocess.Popen(spin) for _ in range(2 * os.cpu_count())]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def test_a_pool_that_follows_its_backlog_grows_on_busy_processors(tmp_path):
    """Its jobs wait for a network."""
    config = FOLLOWS.format(scale_on="backlog")
    with Site(tmp_path, HOLD_IO, config=config) as site, busy_processors():
        supervisor = site.start("io=1..4")
        ids = site.add_many("hold", [{"gate": "open"}] * 6, pool="io")
        wait_until(lambda: len(site.witnesses()) == 4, PATIENCE_S, "four at once")
        supervisor.wait_event("pool_resized", pool="io", size_to=4)
        resized = supervisor.events("pool_resized", pool="io")
        assert {event["reason"] for event in resized} == {GREW}
        assert resized[-1]["size_to"] == 4
        report = wait_until(site.store.run_reports, PATIENCE_S, "a report")[0].report
        assert "io" in report.pools
        site.open_gate("open")
        site.finish_all(ids)


def test_a_pool_that_follows_age_grows_once_a_job_has_waited_so_long(tmp_path):
    """Not before: a short wait costs less than a child."""
    config = FOLLOWS.format(scale_on="age")
    with Site(tmp_path, HOLD_IO, config=config) as site:
        supervisor = site.start("io=1..2")
        first, second = site.add_many("hold", [{"gate": "open"}] * 2, pool="io")
        wait_until(lambda: len(site.witnesses()) == 2, PATIENCE_S, "both at once")
        supervisor.wait_event("pool_resized", pool="io")
        (resized,) = supervisor.events("pool_resized", pool="io")
        assert resized["size_to"] == 2
        site.open_gate("open")
        jobs = site.finish_all([first, second])
        assert max(one.started_at_ms - one.run_at_ms for one in jobs) >= 2000
