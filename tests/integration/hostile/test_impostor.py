"""A handler that reports its own end to its supervisor, and goes on.

It is believed, because a child's reports arrive as the same bytes. But it does not run
on for long, and no other job waits for it or is charged.
"""

import os
import time
from functools import partial

import pytest

from jobpool.core.jobs.job import JobState
from support.site.supervising import Site
from support.waiting import side_by_side, wait_until

APP = """
import select, sys
from jobpool.sandbox.protocol.messages import Done, encode


def report_own_end():
    frame = sys._getframe()
    while not (frame.f_code.co_name == "_attempt" and "job" in frame.f_locals):
        frame = frame.f_back
    job = frame.f_locals["job"]
    said = encode(Done(job.seq, job.token, True, b'"forged"', 0.0, 0.0, 1, 1))
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), said)
        except OSError:
            continue


@jobs.job("cpu", kind="canary")
def canary(n: int):
    return n


@jobs.job("io", kind="other")
def other(n: int):
    return n


def wait_as_children_do():
    poll = select.poll()
    for _ in range(2):
        poll.register(os.pipe()[0], select.POLLIN)
    poll.poll()


def work():
    while True:
        sum(range(100_000))


def grow():
    kept = []
    try:
        while True:
            kept.append(b"x" * (1 << 20))
            time.sleep(0.005)
    except MemoryError:
        time.sleep(600)


def fork():
    if os.fork() == 0:
        grow()
    wait_as_children_do()


@jobs.job("cpu", kind="impostor", memory="100MiB", timeout="1h", max_attempts=1)
def impostor(how: str):
    witness()
    report_own_end()
    if how == "hides and sleeps":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        time.sleep(600)
    elif how == "sleeps":
        time.sleep(600)
    elif how == "works":
        work()
    elif how == "imitates and works":
        threading.Thread(target=work, daemon=True).start()
        wait_as_children_do()
    elif how == "imitates and grows":
        threading.Thread(target=grow, daemon=True).start()
        wait_as_children_do()
    elif how == "forks and grows":
        fork()
"""
SEEN = {
    "sleeps": "does not wait for one",
    "hides and sleeps": "hides what it does"
    if os.geteuid()
    else "does not wait for one",  # from root nothing can be hidden
    "works": "",  # whichever is seen first
    "imitates and works": "of a processor",
    "imitates and grows": "MiB allowed",
    "forks and grows": "MiB allowed",
}


PATCHED = """
class Elsewhere:
    def __init__(self):
        self.epoll = select.epoll()

    def register(self, fd, mask):
        self.epoll.register(fd, mask)

    def poll(self, timeout=None):
        return self.epoll.poll(timeout)


select.poll = Elsewhere
"""
ALSO = {"plain": "", "patched": PATCHED}


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Let impostors go on and ordinary children wait, each on a site of its own."""

    def story(tell, what):
        return partial(tell, tmp_path_factory.mktemp("site"), what)

    told = {how: story(go_on_after_the_end, how) for how in SEEN}
    told |= {name: story(wait_as_idle, also) for name, also in ALSO.items()}
    with side_by_side(told) as begun:
        yield begun


@pytest.mark.parametrize("how", SEEN)
def test_a_handler_that_goes_on_after_its_end_is_found(stories, how):
    """By the kernel's view of a child that should wait.

    It is replaced, and no job is charged.
    """
    stories[how].result()


@pytest.mark.parametrize("name", ALSO)
def test_ordinary_children_count_as_idle(stories, name):
    """A child that waits is never reported, however long and however patched."""
    stories[name].result()


def about_idle(supervisor):
    """Return the alarms about children that should wait, of all that there may be."""
    alarms = supervisor.events("alarm")
    return [one for one in alarms if "should wait for a job" in one["text"]]


def go_on_after_the_end(folder, how):
    with Site(folder, APP) as site:
        supervisor = site.start("cpu=1,io=1")
        impostor = site.add("impostor", {"how": how})
        pid = site.wait_begun(impostor).pid
        assert site.result(impostor) == "forged"
        alarm = wait_until(
            lambda: about_idle(supervisor), 60, "an alarm about the impostor"
        )[0]
        assert SEEN[how] in alarm["text"]
        wait_until(lambda: pid not in site.children(), 60, "the impostor's end")
        assert site.result(site.add("canary", {"n": 7})) == 7
        assert site.job(impostor).state is JobState.SUCCEEDED
        assert supervisor.stop() == 0


def wait_as_idle(folder, also):
    with Site(folder, APP + also) as site:
        supervisor = site.start("cpu=2,io=2")
        for n in range(8):
            kind, pool = ("canary", "cpu") if n % 2 else ("other", "io")
            assert site.result(site.add(kind, {"n": n}, pool=pool)) == n
        pids = set(site.children())
        checks_s = 5 * 2.0
        until_s = time.monotonic() + checks_s
        wait_until(lambda: time.monotonic() > until_s, checks_s + 5, "five idle checks")
        assert set(site.children()) == pids
        assert about_idle(supervisor) == []
        assert supervisor.stop() == 0


def test_no_job_waits_behind_a_handler_that_goes_on_after_its_end(tmp_path):
    """The next job runs soon, elsewhere, on its first attempt."""
    with Site(tmp_path / "site", APP) as site:
        supervisor = site.start("cpu=1,io=1")
        impostor = site.add("impostor", {"how": "sleeps"})
        assert site.result(impostor) == "forged"
        canary = site.add("canary", {"n": 7})
        assert site.result(canary) == 7
        job = site.job(canary)
        assert (job.attempt, job.failures, job.crashes) == (1, 0, 0)
        assert supervisor.stop() == 0
