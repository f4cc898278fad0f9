"""A supervisor beside a web process: one for a store, however many processes there are.

Each process here is a program that starts one and waits until it is told to end.
"""

import errno
import signal
import subprocess
import sys

import psutil
import pytest

from jobpool.errors import UsageError
from jobpool.integrations import beside
from jobpool.integrations.beside import Beside
from support.site.supervising import PATIENCE_S, Site, is_alive
from support.waiting import wait_until

READY = "supervisor_ready"
PROGRAM = """
import logging, sys
from jobpool.integrations.beside import Beside
logging.basicConfig()
beside = Beside("--pools", "cpu=1", "--log-format", "json", store=sys.argv[1])
beside.start()
sys.stdin.read()
beside.stop()
"""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path, app="@jobs.job('cpu')\ndef work(): ...\n") as found:
        yield found


class Web:
    """A process with a supervisor beside it, perhaps."""

    def __init__(self, site):
        self.log = site.folder / f"web.{len(list(site.folder.glob('web.*')))}"
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, site.url],
                cwd=site.folder,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
            )

    def said(self, event):
        return self.log.read_text().count(f'"event":"{event}"')

    def supervisors(self):
        """Return the processes right below it."""
        return psutil.Process(self.process.pid).children()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0


def test_of_two_processes_one_has_the_supervisor(site):
    """Started again if it ends by itself; the other process takes over in the end.

    Also when the first process was killed: its supervisor drains by itself then.
    """
    first, second = Web(site), Web(site)
    wait_until(lambda: first.said(READY) + second.said(READY), PATIENCE_S, READY)
    if second.said(READY):
        first, second = second, first
    (supervisor,) = first.supervisors()
    assert second.supervisors() == []

    supervisor.send_signal(signal.SIGKILL)
    wait_until(lambda: first.said(READY) == 2, PATIENCE_S, "the next one")
    assert "is started again in 1 s" in first.log.read_text()
    assert second.supervisors() == []

    (supervisor,) = first.supervisors()
    first.kill()
    # Once a test has made this process a subreaper, nobody reaps it.
    wait_until(lambda: not is_alive(supervisor.pid), PATIENCE_S, "its end")
    assert first.said("supervisor_stopped") == 1
    wait_until(lambda: second.said(READY), PATIENCE_S, "the other process's")
    second.end()
    assert second.said("supervisor_stopped") == 1


def test_none_is_started_where_handlers_run(monkeypatch):
    """Whatever imports it there."""
    monkeypatch.setenv("JOBPOOL_RUN", "x")
    with pytest.raises(UsageError, match="Nothing was started"):
        Beside().start()


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The processes that a `Beside` of this one starts: true ones, which do nothing."""
    found = []
    popen = subprocess.Popen

    def start(*_words, **_options):
        found.append(popen(["sleep", "600"], start_new_session=True))
        return found[-1]

    monkeypatch.setattr(beside.subprocess, "Popen", start)
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_one_that_was_stopped_is_started_again(tmp_path, started):
    """As a lifespan is that a server, or a test's client, enters twice."""
    one = Beside(store=f"sqlite:///{tmp_path}/jobpool.db")
    for times in (1, 2):
        one.start()
        wait_until(lambda times=times: len(started) == times, PATIENCE_S, "its start")
        one.stop()
        assert started[-1].returncode == -signal.SIGTERM


def test_one_that_cannot_be_started_is_tried_again(
    tmp_path, started, monkeypatch, caplog
):
    """As when the host has no process left for it."""
    start = beside.subprocess.Popen
    errors = [BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")]

    def start_later(*words, **options):
        if errors:
            raise errors.pop()
        return start(*words, **options)

    monkeypatch.setattr(beside.subprocess, "Popen", start_later)
    one = Beside(store=f"sqlite:///{tmp_path}/jobpool.db")
    one.start()
    wait_until(lambda: started, PATIENCE_S, "its start")
    one.stop()
    assert "could not be started: [Errno 11]" in caplog.text
