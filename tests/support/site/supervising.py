"""Real supervisors in a folder of their own, and what a test sees of them outside.

A `Site` is a directory with an application, a store and any number of supervisors,
each a process started from the command line, its log in a file. Every process below
them carries the site's marker in its environment, so that `Site.processes` finds
leftovers.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from jobpool.cli.root import cli
from jobpool.core.jobs.job import FINISHED, NewJob
from jobpool.sandbox.runs.run_directory import read_slots
from jobpool.store.opening import open_store
from support.site.nursery import nursery, suits
from support.store.new_file import place_new_file
from support.waiting import wait_until

PATIENCE_S = 60.0
"""Far longer than anything here takes, even on a busy machine."""
MARKER = "JOBPOOL_TEST_SITE"
PF_EXITING = 0x4
"""Among a process's flags, field 9 of proc(5): the kernel is ending it."""
DEFAULTS = {"JOBPOOL_PROBATION": "200ms", "JOBPOOL_BREAKER_AFTER": "0"}
"""Suspects are cleared soon; and what many crashes do to a kind has its own tests."""
PRELUDE = '''
import ctypes, json, os, resource, signal, subprocess, sys, tempfile, threading, time
from pathlib import Path

import jobpool
from jobpool import GiveUp, JobPool, Retry, RetryLater, Snooze, SoftTimeout, current

jobs = JobPool()
HERE = Path(__file__).resolve().parent
AT_ONCE = {
    name: ["1ms"]
    for name in ("crashed", "out_of_memory", "timed_out", "stalled", "Exception")
}


def witness(what="began"):
    """Leave a line that no supervisor can take back."""
    now = current()
    line = f"{what} {now.id} {now.token} {now.attempt} {os.getpid()}\\n"
    with open(HERE / "witness", "ab", buffering=0) as file:
        file.write(line.encode())


def hold(gate):
    """Say that the job has begun, and wait until the test opens the gate."""
    witness()
    while not (HERE / gate).exists():
        time.sleep(0.005)


def segfault():
    ctypes.string_at(0)
'''
"""What every application here begins with."""


class Witness(NamedTuple):
    """A line that a handler wrote."""

    what: str
    job: int
    token: int
    attempt: int
    pid: int


class Supervisor:
    """One supervisor process."""

    def __init__(self, folder, flags, *, env, logs, before=(), nursed=False):
        self.log = logs / f"log.{uuid.uuid4().hex[:8]}"
        with self.log.open("wb") as log:
            if nursed:
                self.process = nursery().bear(flags, cwd=folder, env=env, log=log)
                return
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "jobpool", *flags],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        """Return what it printed."""
        return self.log.read_text(errors="replace")

    def events(self, name=None, **fields):
        """Return the events of its log that have this name and these fields.

        What is no event is passed over: a traceback, a line that a full disk cut.
        """
        found = []
        for line in self.said().splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            if name in (None, event["event"]) and fields.items() <= event.items():
                found.append(event)
        return found

    def wait_event(self, name, timeout_s=PATIENCE_S, **fields):
        """Wait for an event and return it."""
        return wait_until(
            lambda: self.events(name, **fields), timeout_s, f"{name} {fields}"
        )[0]

    def wait_ready(self):
        """Wait until it takes jobs; fail at once if it ended instead.

        A burst may have been ready, and have ended, before anybody looks.
        """

        def ready():
            code = self.process.poll()
            found = self.events("supervisor_ready")
            assert found or code is None, f"it ended with {code}:\n{self.said()}"
            return found

        return wait_until(ready, PATIENCE_S, "supervisor_ready")[0]

    def send(self, signum):
        """Send it a signal."""
        self.process.send_signal(signum)

    def wait_exit(self, timeout_s=PATIENCE_S):
        """Wait until it has ended and return its exit code."""
        wait_until(
            lambda: self.process.poll() is not None, timeout_s, "the supervisor's end"
        )
        return self.process.returncode

    def stop(self, signum=signal.SIGTERM):
        """Send a signal and wait for the end."""
        self.send(signum)
        return self.wait_exit()

    def kill(self):
        """Kill it with SIGKILL, and reap it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


class Site:
    """A folder with an application, its store, and supervisors.

    Words that come *before* a supervisor's command can start it as another user.
    """

    def __init__(self, folder, app=None, *, config="", logs=None, before=()):
        self.folder = Path(folder)
        self.before = before
        self.logs = Path(logs or folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = f"sqlite:///{self.folder}/jobpool.db"
        self.marker = uuid.uuid4().hex
        self.supervisors = []
        self._store = None
        if app is not None:
            (self.folder / "jobs.py").write_text(PRELUDE + app)
        if config:
            (self.folder / "jobpool.toml").write_text(config)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    # -- supervisors ---------------------------------------------------------------

    def launch(self, *flags, env=None, nursed=False):
        """Start a supervisor with exactly these flags; do not wait for it.

        From its command line, unless it is to be *nursed*: forked from a process that
        has imported what it needs.
        """
        own = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
        own |= {MARKER: self.marker, **DEFAULTS, **(env or {})}
        words = [str(flag) for flag in flags]
        supervisor = Supervisor(
            self.folder,
            words,
            env=own,
            logs=self.logs,
            before=self.before,
            nursed=nursed,
        )
        self.supervisors.append(supervisor)
        return supervisor

    def start(self, pools="cpu=2,io=2", *flags, env=None):
        """Start a supervisor that logs everything, and wait until it is ready."""
        self._place_store()
        log = ("--log-format", "json", "--log-level", "debug")
        nursed = not self.before and suits(env or {})
        words = ("--pools", pools, *log, *flags)
        supervisor = self.launch(*words, env=env, nursed=nursed)
        supervisor.wait_ready()
        return supervisor

    def processes(self):
        """Return the pids of all processes that a supervisor here has started."""
        own = {str(supervisor.pid) for supervisor in self.supervisors}
        marker = f"{MARKER}={self.marker}".encode()
        return [
            int(pid)
            for pid in os.listdir("/proc")  # noqa: PTH208 - a path for each takes longer
            if pid.isdigit()
            and pid not in own
            and marker in _read(f"/proc/{pid}/environ").split(b"\0")
            and is_alive(int(pid))
        ]

    def children(self):
        """Return the pids of the children that the slot files name."""
        found = []
        for run in self.folder.glob("jobpool.db.run/*"):
            with contextlib.suppress(
                FileNotFoundError
            ):  # it begins, or is being removed
                found += [pid for pid, _start in read_slots(run)]
        return found

    def zygotes(self, supervisor):
        """Return the pids of a supervisor's zygotes, the oldest first.

        A child that is not on record yet looks like one: ask `wait_zygotes` where
        there may be such.
        """
        return [
            pid
            for pid in children_of(supervisor.pid)
            if pid not in self.children()
            and b"fresh.begin" in _read(f"/proc/{pid}/cmdline")
        ]

    def wait_zygotes(self, supervisor, count):
        """Wait until a supervisor has just so many zygotes, and return their pids."""
        return wait_until(
            lambda: found if len(found := self.zygotes(supervisor)) == count else None,
            PATIENCE_S,
            f"{count} zygotes, and children on record",
        )

    def wait_nobody(self, timeout_s=PATIENCE_S):
        """Wait until no process of this site is left."""
        wait_until(lambda: not self.processes(), timeout_s, "every process's end")

    def close(self):
        """Kill everything that is left."""
        for supervisor in self.supervisors:
            supervisor.kill()
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.close_store()

    # -- the store -----------------------------------------------------------------

    def _place_store(self):
        """Put a store there that is as new: to make it is a tenth of a start.

        Not for another user, whose it would not be.
        """
        path = self.folder / "jobpool.db"
        if self.url == f"sqlite:///{path}" and not self.before and not path.exists():
            place_new_file(path)

    @property
    def store(self):
        if self._store is None:
            self._place_store()
            self._store = open_store(self.url)
        return self._store

    def close_store(self):
        """Close the test's own connection; the next use opens another one."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def add(self, kind, arguments=None, *, pool="cpu", **options):
        """Enqueue one job as another process would, and return its id."""
        return self.add_many(kind, [arguments], pool=pool, **options)[0]

    def add_many(self, kind, many, *, pool="cpu", **options):
        """Enqueue jobs of a kind in one transaction, and return their ids."""
        made = self.store.enqueue(
            [
                NewJob(
                    kind=kind,
                    pool=pool,
                    payload=json.dumps(arguments or {}).encode(),
                    **options,
                )
                for arguments in many
            ]
        )
        self.store.wake()
        return [one.id for one in made]

    def job(self, job_id):
        """Return a job as it is stored now."""
        return self.store.get(job_id)

    def finish(self, job_id, timeout_s=PATIENCE_S):
        """Wait until a job has finished and return it."""
        return wait_until(
            lambda: self._if_in(job_id, FINISHED), timeout_s, f"job {job_id}'s end"
        )

    def finish_all(self, job_ids, timeout_s=PATIENCE_S):
        """Wait until all these jobs have finished and return them."""
        return [self.finish(job_id, timeout_s) for job_id in job_ids]

    def in_state(self, job_id, state):
        """Wait until a job is in a state and return it."""
        return wait_until(
            lambda: self._if_in(job_id, (state,)), PATIENCE_S, f"job {job_id} {state}"
        )

    def attempts(self, job_id, count=1):
        """Wait until so many attempts have failed and return them."""

        def enough():
            found = self.store.attempts(job_id)
            return found if len(found) >= count else None

        return wait_until(enough, PATIENCE_S, f"{count} attempts of job {job_id}")

    def result(self, job_id):
        """Wait for a job that must succeed, and return its result."""
        job = self.finish(job_id)
        assert job.state == "succeeded", (job.state, job.reason, job.error)
        return json.loads(job.result)

    def _if_in(self, job_id, states):
        job = self.job(job_id)
        return job if job.state in states else None

    # -- files and the command line ------------------------------------------------

    def open_gate(self, gate):
        """Let the handlers go on that hold at this gate."""
        (self.folder / gate).touch()

    def witnesses(self, what="began"):
        """Return what handlers left lines about."""
        path = self.folder / "witness"
        text = path.read_text() if path.exists() else ""
        # What has no end yet is being written.
        parts = (line.split() for line in text.split("\n")[:-1])
        found = (Witness(p[0], *map(int, p[1:])) for p in parts)
        return [one for one in found if one.what == what]

    def wait_begun(self, job_id):
        """Wait until a job's handler has left its line, and return the last one."""

        def begun():
            return [one for one in self.witnesses() if one.job == job_id]

        return wait_until(begun, PATIENCE_S, f"job {job_id}'s begin")[-1]

    def cli(self, *arguments):
        """Call the command line and return the objects that it prints."""
        words = [*map(str, arguments), "--store", self.url, "--json"]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, (words, done.output)
        return [json.loads(line) for line in done.stdout.splitlines()]


def exhaust(supervisor):
    """Take every free descriptor from a process; return what gives them back."""
    before = resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE)
    count = len(list(Path(f"/proc/{supervisor.pid}/fd").iterdir()))
    resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, (count, before[1]))
    return lambda: resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, before)


def children_of(pid):
    """Return the pids of a process's children."""
    text = _read(f"/proc/{pid}/task/{pid}/children").decode()
    return [int(word) for word in text.split()]


def is_alive(pid):
    """Say whether a process exists and may still run something.

    One that is ending does not, though it is no zombie before it has given back its
    memory. Its environment is gone as soon, so that `Site.processes` misses it, too.
    """
    stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(stat) and stat[0] not in (b"Z", b"X") and not int(stat[6]) & PF_EXITING


def _read(path):
    """Return a file of /proc, nothing when its process is gone."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as above
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
