"""Which process the kernel kills first: no handler makes it the supervisor."""

import errno
import os
import signal
from pathlib import Path

import pytest

from jobpool.sandbox.system import oom
from jobpool.sandbox.system.oom import OomScores
from support.site.supervising import PATIENCE_S, Site
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="raise", max_attempts=1)
def raise_score(pids: list[int]):
    for pid in pids:
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
"""


def score_of(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def said_of(supervisor):
    """Return the alarms about scores, of all that there may be."""
    alarms = supervisor.events("alarm")
    return [one for one in alarms if "oom_score_adj" in one["text"]]


@pytest.fixture
def started():
    """A process that this one has started."""
    if (pid := os.fork()) == 0:
        signal.pause()
        os._exit(0)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_raised_score_is_put_back_and_reported(started):
    """A lowered score is left; nothing is reported twice."""
    scores, first = OomScores(), score_of(started)
    assert scores.restore([started]) == []
    Path(f"/proc/{started}/oom_score_adj").write_text(str(first + 7))
    assert scores.restore([started]) == [started]
    assert score_of(started) == first
    assert scores.restore([started, 2**22 + 1]) == []


def test_a_handler_cannot_make_the_supervisor_the_kernels_first_victim(tmp_path):
    """A second after a handler raised their scores, these are back to normal."""
    with Site(tmp_path, APP) as site:
        supervisor = site.start("cpu=1")
        supervisor.wait_event("child_started")  # before, it looks like a zygote
        pids = [supervisor.pid, *site.zygotes(supervisor)]
        before = [*map(score_of, pids)]
        assert len(pids) > 1
        site.finish(site.add("raise", {"pids": pids}))
        wait_until(lambda: [*map(score_of, pids)] == before, PATIENCE_S, "put back")
        # A thread of its own writes the log: a score may be back before its line.
        wait_until(lambda: len(said_of(supervisor)) >= len(pids), PATIENCE_S, "said")
        assert len(said_of(supervisor)) == len(pids)
        supervisor.stop()


def test_processes_that_cannot_be_read_are_left_for_the_next_time(monkeypatch):
    """Without a free descriptor, scores cannot be read."""
    scores = OomScores()

    def refuse(_path):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(oom, "read", refuse)
    assert scores.restore([os.getpid()]) == []
