"""The demo's supervisor: a process of its own, as a user would start it.

Theory of operation. It has its own session, so that Ctrl-C reaches the demo alone,
which then asks it to drain. Should the demo be killed, the kernel sends the
supervisor SIGTERM (parent-death signal), and it drains by itself. Its environment
holds no ``JOBPOOL_`` variable of the caller's: the demo is the same everywhere.

Nothing may be left of it. A process is the demo's when the environment that it was
started with names the demo's directory: setsid, double forks and a new parent do
not change that. The daemons of the hostile handler are on record besides, with their
start times, so that a recycled pid is no false alarm.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from jobpool.cli.demo.handlers import DAEMONS
from jobpool.cli.demo.workspace import LOG, store_url
from jobpool.core.clock import SystemClock
from jobpool.errors import JobpoolError
from jobpool.sandbox.system.libc import prctl
from jobpool.sandbox.system.procfs import is_alive, kib_bytes, read

APP = "jobpool.cli.demo.app"
MARKER = "DEMO_OF_JOBPOOL"
"""Variable with the demo's directory, set for the supervisor and all that it starts."""
PATIENCE_S = 30.0
"""The dying takes a moment; a busy machine may let it wait."""
_PR_SET_PDEATHSIG = 1
_END_S = 40.0
"""A drain takes up to 25 s."""


class Memory(NamedTuple):
    """Resident memory, as of now and at its peak."""

    supervisor_bytes: int
    supervisor_peak_bytes: int
    """The kernel's own figure."""
    family: int
    """Processes below the supervisor: zygotes, children and what these started."""
    family_bytes: int
    """Their sum; pages that they share count several times."""
    family_peak_bytes: int
    """The largest sum that was seen."""


class Supervisor:
    """A running supervisor.

    Args:
        directory: the demo's.
        pools: as for ``--pools``.
        app: its application.
    """

    def __init__(self, directory: Path, pools: str, app: str = APP) -> None:
        self._log = directory / LOG
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command_line(directory, pools, app),
                cwd=directory,
                env=environment(os.environ, directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one thread so far
            )
        self._family_peak_bytes = 0

    def end(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """Let it drain, or with SIGQUIT end now; return how it ended.

        Negative for a signal. It may have ended before.
        """
        if self._process.poll() is None:
            self._process.send_signal(signum)
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            JobpoolError: it has ended.
        """
        if (code := self._process.poll()) is not None:
            raise self.error(f"the supervisor has ended with {code}")

    def error(self, what: str) -> JobpoolError:
        """Return an error with the end of the log, where the cause may stand."""
        log = self._log.read_text("utf-8", "replace").splitlines()[-8:]
        return JobpoolError(f"{what}; its log, {self._log}, ends: {' | '.join(log)}")

    def memory(self) -> Memory:
        """Sample the memory of all of its processes."""
        pid, own_bytes, sizes = self._process.pid, 0, []
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(pid)
            own_bytes = supervisor.memory_info().rss
            for process in supervisor.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    sizes.append(process.memory_info().rss)
        self._family_peak_bytes = max(self._family_peak_bytes, sum(sizes))
        return Memory(
            own_bytes,
            kib_bytes(read(f"/proc/{pid}/status"), (b"VmHWM:",)),
            len(sizes),
            sum(sizes),
            self._family_peak_bytes,
        )


def command_line(directory: Path, pools: str, app: str = APP) -> list[str]:
    """Return the command that starts the supervisor, as anybody could type it."""
    launch = ["--pools", pools, "--app", app, "--log-format"]
    launch += ["human", "--store", store_url(directory)]
    return [sys.executable, "-m", "jobpool", *launch]


def environment(ours: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the supervisor's environment: ours without jobpool's own variables."""
    kept = {key: text for key, text in ours.items() if not key.startswith("JOBPOOL_")}
    return {**kept, MARKER: str(directory)}


def processes_left(directory: Path, clock: SystemClock) -> list[int]:
    """Return the demo's processes, once there are none or `PATIENCE_S` is over.

    Args:
        directory: the demo's; its supervisor has ended.
        clock: measures the patience.
    """
    deadline_s = clock.monotonic_s() + PATIENCE_S
    while (left := _left(directory)) and clock.monotonic_s() < deadline_s:
        time.sleep(0.02)
    return left


def daemons_started(directory: Path) -> list[tuple[int, int]]:
    """Return process ids and start times of all daemons that were ever left behind."""
    try:
        text = (directory / DAEMONS).read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    lines = (line.split() for line in text.splitlines())
    return [(int(pid), int(start_time)) for pid, start_time in lines]


def _left(directory: Path) -> list[int]:
    marker = os.fsencode(f"{MARKER}={directory}")
    left = {pid for pid, start in daemons_started(directory) if is_alive(pid, start)}
    for pid in psutil.pids():
        with contextlib.suppress(PermissionError):  # somebody else's, not ours
            if marker in read(f"/proc/{pid}/environ").split(b"\0"):
                left.add(pid)
    return sorted(left - {os.getpid()})


def end_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent is gone."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
