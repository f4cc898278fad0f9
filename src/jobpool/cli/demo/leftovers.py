"""Counts what a demo has left running: nothing, or it has failed.

Theory of operation. A process is the demo's when the environment that it was
started with names the demo's directory: setsid, double forks and a new parent do
not change that. The daemons of the hostile handler have written down who they are
besides, with their start times, so that a recycled pid is no false alarm.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

from jobpool.cli.demo.hostile import DAEMONS
from jobpool.core.clock import SystemClock
from jobpool.sandbox.procfs import is_alive, read

MARKER = "DEMO_OF_JOBPOOL"
"""Variable with the demo's directory, set for the supervisor and all that it starts."""
PATIENCE_S = 5.0
_AGAIN_S = 0.02


def processes_left(directory: Path, clock: SystemClock) -> list[int]:
    """Return the demo's processes, once there are none or `PATIENCE_S` is over.

    Args:
        directory: the demo's; its supervisor has ended.
        clock: measures the patience: the dying takes a moment.
    """
    deadline = clock.monotonic_s() + PATIENCE_S
    while (left := _left(directory)) and clock.monotonic_s() < deadline:
        # Wakes as soon as one of them has ended, which it usually has by now.
        psutil.wait_procs(_handles(left), timeout=_AGAIN_S)
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


def _handles(pids: list[int]) -> list[psutil.Process]:
    handles = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            handles.append(psutil.Process(pid))
    return handles
