"""Unbounded numbers of processes and threads, where no cgroup bounds them."""

import pytest

from support.site.supervising import Site

MOST = 64
APP = """
@jobs.job("cpu", kind="zombies", max_attempts=1)
def zombies():
    for number in range(1000):  # a bound for the machine's sake
        if os.fork() == 0:
            os._exit(0)
        time.sleep(0.01 if number > 100 else 0)  # so that a busy host keeps up
    time.sleep(60)


@jobs.job("cpu", kind="bomb", max_attempts=1)
def bomb():
    for _ in range(9):
        os.fork()
    time.sleep(60)


@jobs.job("cpu", kind="threads", max_attempts=1)
def threads():
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(60)


@jobs.job("cpu", kind="threads.below", max_attempts=1)
def threads_below():
    if os.fork() == 0:
        for _ in range(200):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(60)


@jobs.job("cpu", kind="few", max_attempts=1)
def few():
    made = [subprocess.Popen(["sleep", "0.2"]) for _ in range(40)]
    return sum(one.wait() for one in made)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    config = f"[pools.cpu]\nmax_processes = {MOST}\n"
    with Site(tmp_path_factory.mktemp("processes"), APP, config=config) as site:
        site.start("cpu=2")
        yield site
        site.supervisors[0].stop()


@pytest.mark.parametrize("kind", ["zombies", "bomb", "threads", "threads.below"])
def test_a_job_that_forks_without_end_is_killed_and_charged(site, kind):
    """Long before it could use up all process ids of the host."""
    job = site.finish(site.add(kind))
    (attempt,) = site.store.attempts(job.id)
    assert (job.state, attempt.outcome) == ("dead", "crashed")
    assert "processes and threads, over its limit of 64 (max_processes)" in (
        attempt.reason
    )
    assert MOST < int(attempt.reason.split()[4]) < 1000
    assert attempt.duration_s < 30
    assert site.result(site.add("few")) == 0
