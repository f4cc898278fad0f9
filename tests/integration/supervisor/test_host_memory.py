"""Honest jobs outgrow their host: the guard lets all of them get done, at no charge.

The children and their memory are real; only the host is smaller than it is.
"""

import os
import sys
from collections import Counter

import pytest

from jobpool.core.jobs.job import JobState
from support.site import small_host
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

MIB = 2**20
APP = """
def looks():
    return (HERE / "looks").stat().st_size


def begun():
    lines = (HERE / "witness").read_text().split("\\n")[:-1]
    return len({line.split()[1] for line in lines})


@jobs.job("cpu", kind="grow", memory="128MiB", max_attempts=1)
def grow(mib: int):
    witness()
    kept, late_s = [], time.monotonic() + TOGETHER_S
    while mib > 1 and begun() < ALL and time.monotonic() < late_s:
        time.sleep(0.005)  # else the first may be done before the last begin
    for _ in range(mib):
        seen = looks()
        kept.append(bytearray(os.urandom(1) * 2**20))
        time.sleep(0.04 if mib > 1 else 0)
        while mib > 1 and looks() == seen:  # a busy host must keep up
            time.sleep(0.005)
    witness("ended")
    return len(kept)
"""
TOGETHER_S = 20
"""At most so long, each big job waits for the others to begin."""
CONFIG = 'memory_budget = "600MiB"'
"""By its limit, four jobs at once."""
LEFT_BYTES = 600 * MIB
SLOTS, SMALL = 10, 150
BIG_MIB = 48
"""Of it that many do not fit into what is left."""


@pytest.fixture
def site(tmp_path):
    host = str(tmp_path / "site"), str(LEFT_BYTES)
    program = (sys.executable, small_host.__file__, *host)
    app = f"ALL, TOGETHER_S = {SMALL + SLOTS}, {TOGETHER_S}\n{APP}"
    with Site(tmp_path / "site", app, config=CONFIG, before=program) as site:
        yield site


def test_honest_jobs_that_outgrow_their_host_are_all_done_at_no_charge(site):
    """They had used little a hundred times, so many may run; then they grow together.

    Each ends once, and the host never has nothing left.
    """
    supervisor = site.start(
        f"cpu={SLOTS}", env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    )
    site.finish_all(site.add_many("grow", [{"mib": 1}] * SMALL))
    big = site.add_many("grow", [{"mib": BIG_MIB}] * SLOTS)
    done = site.finish_all(big)
    assert {one.state for one in done} == {JobState.SUCCEEDED}
    for job in done:
        spent = job.failures, job.crashes, job.interruptions, job.recoveries
        assert spent == (0, 0, 0, 0), job
    ends = Counter(one.job for one in site.witnesses("ended"))
    assert {ends[job] for job in big} == {1}
    begun = Counter(one.job for one in site.witnesses("began"))
    again = sum(begun[job] - 1 for job in big)
    assert again > 0, "there was no pressure"
    wait_until(
        lambda: len(supervisor.events("job_ended", outcome="interrupted")) >= again,
        PATIENCE_S,
        "the interruptions in the log",
    )
    assert supervisor.wait_event("host_memory_short")
    assert small_host.lowest_bytes(site.folder) > 0
