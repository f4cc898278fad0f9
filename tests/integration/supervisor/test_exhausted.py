"""What still holds when a supervisor has used up its descriptors."""

import contextlib
import resource
from pathlib import Path

import pytest

from support.site.supervising import Site

APP = """
@jobs.job("cpu", kind="hog", memory="100MiB", max_crashes=1)
def hog(gate: str, forks: bool):
    hold(gate)
    if forks and os.fork():
        os.wait()
    kept = b"x" * (160 << 20)
    time.sleep(1000)


@jobs.job("cpu", kind="fine")
def fine():
    return 1


@jobs.job("cpu", kind="crash", max_crashes=1)
def crash(gate: str):
    hold(gate)
    segfault()
"""


@contextlib.contextmanager
def no_descriptors(pid):
    """Leave a process the descriptors that it has.

    Never a limit below the number of one of them: then the place of one that it closes
    could not be used again, as it can where all are really used up. So if there is a
    gap in the numbers, from a start at which threads opened and closed, it is free.
    """
    numbers = [int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(numbers) + 1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("forks", [False, True])
def test_memory_is_limited_without_a_free_descriptor(tmp_path, forks):
    """Measuring needs some, which are kept in reserve.

    Also a job's other processes count.
    """
    with Site(tmp_path, APP) as site:
        supervisor = site.start("cpu=1")
        job_id = site.add("hog", {"gate": "grow", "forks": forks})
        site.wait_begun(job_id)
        with no_descriptors(supervisor.pid):
            site.open_gate("grow")
            supervisor.wait_event("job_quarantined", id=job_id)
        assert site.finish(job_id).outcome == "out_of_memory"


def test_a_crash_is_charged_without_a_free_descriptor(tmp_path):
    """Its mark shows that it had begun, so its ticket was not stolen."""
    with Site(tmp_path, APP) as site:
        supervisor = site.start("cpu=1")
        site.finish(site.add("fine"))
        job_id = site.add("crash", {"gate": "crash"})
        site.wait_begun(job_id)
        with no_descriptors(supervisor.pid):
            site.open_gate("crash")
            supervisor.wait_event("job_quarantined", id=job_id)
        job = site.finish(job_id)
        assert (job.outcome, job.crashes, job.interruptions) == ("crashed", 1, 0)
