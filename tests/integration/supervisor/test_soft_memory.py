"""The soft memory limit, as seen from outside of a real supervisor."""

import pytest

from support.site.supervising import Site

APP = """
import asyncio
from jobpool import SoftMemory

MIB = 2**20


def fill(held, mebibytes=400):
    for _ in range(mebibytes):
        held.append(b"x" * MIB)
        time.sleep(0.001 if len(held) < 80 else 0.005)  # a busy host must keep up


def fill_and_wait(held, mebibytes):
    # However late the host is, it sees this before it is over the hard limit, too.
    fill(held, mebibytes)
    time.sleep(60)


@jobs.job("cpu", kind="caught", memory="300MiB", memory_soft="100MiB", max_attempts=1)
def caught():
    held = []
    try:
        fill_and_wait(held, 150)
    except SoftMemory:
        count = len(held)
        held.clear()
        fill(held, count + 20)
        return [count, len(held)]


@jobs.job("cpu", kind="uncaught", memory="300MiB", memory_soft=0.3, max_attempts=1)
def uncaught():
    fill_and_wait([], 150)


@jobs.job("cpu", kind="deaf", memory="200MiB", memory_soft="80MiB", max_attempts=1)
def deaf():
    held = []
    try:
        fill_and_wait(held, 110)
    except SoftMemory:
        pass
    while True:
        try:
            fill(held)
        except SoftMemory:
            pass


@jobs.job("cpu", kind="async", memory="300MiB", memory_soft="80MiB", max_attempts=1)
async def asynchronous():
    held = [b"x" * MIB for _ in range(100)]
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "canceled at " + str(len(held))


@jobs.job("cpu", kind="below", memory="300MiB", memory_soft="100MiB", max_attempts=1)
def below():
    script = "import sys; sys.stdin.readline(); held = b'x' * (120 << 20); input()"
    program = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        program.stdin.write(b"take it\\n")
        program.stdin.flush()
        time.sleep(60)
    except SoftMemory as exc:
        program.kill()
        program.wait()
        return str(exc)


KEPT = []


@jobs.job("cpu", kind="leaves", memory="300MiB", max_attempts=1)
def leaves():
    fill(KEPT, 110)


@jobs.job("cpu", kind="unaware", memory="300MiB", max_attempts=1)
def unaware():
    held = []
    fill(held, 150)
    hold("logged")
    return len(held)


@jobs.job("cpu", kind="stray", memory="300MiB", memory_soft="250MiB", max_attempts=1)
def stray():
    for _ in range(100):
        os.kill(os.getpid(), signal.SIGURG)
        time.sleep(0.0005)
    return "went on"
"""
CONFIG = """
[kinds.unaware]
memory_soft = "100MiB"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with Site(tmp_path_factory.mktemp("soft"), APP, config=CONFIG) as site:
        site.start("cpu=1")
        yield site
        site.supervisors[0].stop()


def said_of(site, job_id):
    """Return what the log says about a job's soft limit, once it does."""
    supervisor = site.supervisors[0]
    supervisor.wait_event("memory_soft_passed", id=job_id)
    return supervisor.events("memory_soft_passed", id=job_id)


def test_a_handler_can_release_memory_and_go_on(site):
    """Raised near the limit, and only once; the log has the figures."""
    job_id = site.add("caught")
    count, again = site.result(job_id)
    assert 60 <= count <= 200
    assert again == count + 20
    (event,) = said_of(site, job_id)
    assert event["raised"]
    assert event["soft_bytes"] == 100 << 20 < event["rss_bytes"]


def test_uncaught_soft_memory_is_a_failure_and_no_crash(site):
    """Nothing was killed, so it does not count towards quarantine."""
    job = site.finish(site.add("uncaught"))
    assert (job.state, job.failures, job.crashes) == ("dead", 1, 0)
    (attempt,) = site.store.attempts(job.id)
    assert (attempt.outcome, attempt.signal) == ("failed", None)
    assert attempt.error_class == "jobpool.errors.SoftMemory"
    assert "over the soft memory limit of 90MiB" in attempt.error


def test_the_hard_memory_limit_applies_after_the_soft_one(site):
    """Swallowing SoftMemory gains nothing."""
    job = site.finish(site.add("deaf"))
    (attempt,) = site.store.attempts(job.id)
    assert attempt.outcome == "out_of_memory"
    assert "over its memory limit of 200MiB" in attempt.reason
    assert len(said_of(site, job.id)) == 1


def test_soft_memory_reaches_a_coroutine(site):
    """An async handler is canceled where it waits."""
    assert site.result(site.add("async")) == "canceled at 100"


def test_memory_of_other_processes_counts_for_the_soft_limit(site):
    """It limits the whole process tree, as the hard one does."""
    assert "are in use" in site.result(site.add("below"))


def test_memory_left_by_another_job_raises_no_soft_memory(site):
    """The handler could not release that memory: it gets a child with room."""
    assert site.finish(site.add("leaves")).state == "succeeded"
    job = site.finish(site.add("below"))
    assert (job.state, job.attempt) == ("succeeded", 1), job.reason


def test_a_handler_that_did_not_ask_for_soft_memory_is_not_interrupted(site):
    """An operator's limit is only logged."""
    job_id = site.add("unaware")
    (event,) = said_of(site, job_id)
    site.open_gate("logged")
    assert site.result(job_id) == 150
    assert not event["raised"]


def test_a_stray_soft_memory_signal_interrupts_nothing(site):
    """A signal meant for the previous attempt finds this one below its limit."""
    assert site.result(site.add("stray")) == "went on"
