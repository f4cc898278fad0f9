"""The supervisors of a chaos run, and their processes as the machine shows them."""

import contextlib
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple

from chaos.launch import OFFSET, ShiftedClock
from jobpool.sandbox.cgroups.cgroup import PREFIX
from jobpool.sandbox.runs.run_directory import HEADER_BYTES, read_header
from jobpool.sandbox.system.procfs import process_start_time
from support.site.service import Service, environment

APP = Path(__file__).with_name("jobs.py")
MARKER = "CHAOS_PLACE"
SIZES = {"cpu": 3, "io": 3}
SLOTS = tuple(f"{pool}/{n}" for pool, size in SIZES.items() for n in range(size))
LEASE_TTL_S = 5
RECORD = struct.Struct("<qQ")


class Child(NamedTuple):
    """A child that a slot file names."""

    run: str
    slot: str
    pid: int
    start_time: int


class Life(NamedTuple):
    """A supervisor's process from its start to its end."""

    name: str
    run: str | None
    """None: it had not come so far as to have one."""
    began_ns: int
    ended_ns: int
    how: str
    """``killed``, or its exit code."""
    last_words: str = ""
    """What it said last, if it ended by itself."""


class Member(Service):
    """One of several supervisors, with a clock of its own.

    Args:
        name: short and unlike others.
        place: where it runs.
    """

    def __init__(self, name, place):
        clock = place.directory / f"{name}.clock"
        clock.write_bytes(OFFSET.pack(0))
        self.clock = ShiftedClock(clock)
        self.lives: list[Life] = []
        self._place, self._began_ns, self._run = place, 0, None
        paths = [*os.environ.get("PYTHONPATH", "").split(":"), str(APP.parents[1])]
        sizes = ",".join(f"{pool}={size}" for pool, size in SIZES.items())
        flags = ["--pools", sizes, "--app", str(APP), "--store", place.url_for(name)]
        flags += ["--log-format", "json", "--log-level", "debug", "--drain", "20s"]
        flags += ["--lease-ttl", f"{LEASE_TTL_S}s"]
        super().__init__(
            name,
            [sys.executable, "-m", "chaos.launch", *flags],
            directory=place.directory,
            env=environment(
                PYTHONPATH=":".join(filter(None, paths)),
                CHAOS_MARKS=str(place.marks),
                CHAOS_CLOCK=str(clock),
                JOBPOOL_RUN_DIR=str(place.run_root),
                # Poison crashes in a row on purpose: an open breaker would have its
                # jobs wait for hours.
                JOBPOOL_BREAKER_AFTER="0",
                # Here suspects are made all the time: else a drain mostly waits until
                # supervisors that were started again are old enough for them.
                JOBPOOL_PROBATION="3s",
                TMPDIR=str(place.tmp),
                **{MARKER: str(place.directory)},
            ),
        )

    def find_run(self):
        """Return the run of the living supervisor, once it has one."""
        if self._run is None and self._process is not None:
            self._run = run_of(self._place.run_directories(), self._process.pid)
        return self._run

    def start(self):
        """Start it again if it has ended, and note how it did."""
        if self._process is not None and self.pid is None:
            said = _last_line(self.log)
            self.note(str(self._process.returncode), last_words=said)
        began_ns = time.time_ns()
        if is_new := super().start():
            self._began_ns, self._run = began_ns, None
        return is_new

    def kill(self):
        """Kill it, and note it."""
        if self.pid is not None:
            self.find_run()
            began_ns = time.time_ns()
            super().kill()
            self.note("killed", began_ns)

    def stop(self):
        """Let it drain. Return what went wrong."""
        self.find_run()
        said = super().stop()
        self.note("drained")
        return said

    def note(self, how, at_ns=None, last_words=""):
        """Record that it has ended."""
        ended_ns = at_ns or time.time_ns()
        self.lives.append(
            Life(self.name, self._run, self._began_ns, ended_ns, how, last_words)
        )

    def children(self):
        """Return the children that it has put on record."""
        run = self.find_run()
        body = b""
        for path in self._place.run_directories():
            if path.name == run:
                body = _read(path / "slots")[HEADER_BYTES:]
        records = RECORD.iter_unpack(body[: len(body) // RECORD.size * RECORD.size])
        return [
            Child(run, slot, pid, start_time)
            for slot, (pid, start_time) in zip(SLOTS, records, strict=False)
            if pid > 0
        ]

    def zygotes(self):
        """Return its zygotes, as pid and start time."""
        if self.pid is None:
            return []
        own = {child.pid for child in self.children()}
        return [
            (pid, process_start_time(pid))
            for pid in children_of(self.pid)
            if pid not in own and b"fresh.begin" in _read(f"/proc/{pid}/cmdline")
        ]


def _last_line(log):
    return log.read_bytes().decode(errors="replace").rstrip().rpartition("\n")[2]


def run_of(directories, pid):
    """Return the run of a supervisor's process, by its run directory."""
    started = process_start_time(pid)
    for path in directories:
        with contextlib.suppress(OSError, ValueError):
            header = read_header(path)
            if (header.pid, header.start_time) == (pid, started):
                return header.run_id
    return None


def send(pid, start_time, signum):
    """Signal exactly this process; return whether it was there."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if process_start_time(pid) != start_time:
            return False
        signal.pidfd_send_signal(fd, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def children_of(pid):
    """Return the pids of a process's children."""
    return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split()]


def processes(directory):
    """Return all living processes below the supervisors of a place."""
    marker = f"{MARKER}={directory}".encode()
    return [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and marker in _read(path / "environ").split(b"\0")
    ]


def cgroups_of(lives):
    """Return the control groups that supervisors have left behind."""
    names = {f"{PREFIX}{life.run}" for life in lives}
    return [
        f"{parent}/{name}"
        for parent, below, _files in os.walk("/sys/fs/cgroup")
        for name in below
        if name in names
    ]


def _read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
