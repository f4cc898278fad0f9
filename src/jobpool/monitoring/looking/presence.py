"""Whether a supervisor of this machine is alive: its lock is tested, never taken.

Taking the lock, even for a moment, could make a start or a proof of death fail.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from jobpool.core.units import show_duration
from jobpool.sandbox.system.platform import (
    IS_LINUX,
    boot_id,
    has_ended,
    pid_namespace,
)
from jobpool.store.records.runs import Run

_STOPPED = frozenset("Tt")
"""States of a process in /proc: by a signal, by a debugger."""
_FLOCK = struct.Struct("hhqqi")
"""``struct flock`` as the C library lays it out: type, whence, start, length, pid."""


def holder(folder: Path) -> int | None:
    """Return the pid of the living supervisor of a run directory, if there is one."""
    if not IS_LINUX:
        return None  # there are no supervisors, and no run directories
    from jobpool.sandbox.runs.run_directory import read_header  # noqa: PLC0415 - Linux's

    with suppress(OSError, ValueError):
        header = read_header(folder)
        if header.pid_namespace != pid_namespace():
            return None  # of another container that shares the directory
        if _is_locked(folder):
            return header.pid
    return None


def has_died(root: Path, run: Run) -> bool:
    """Say whether a run's supervisor is known to be dead.

    False: it is alive, or that cannot be seen from here. Other processes of the run may
    still be alive: only a supervisor proves that there are none, and takes its jobs.

    Args:
        root: where the run directories of its store are on this machine.
        run: an open one.
    """
    if not IS_LINUX:
        import socket  # noqa: PLC0415 - others need none

        is_here = run.host == socket.gethostname()
        return is_here and has_ended(run.pid, run.started_at_ms)
    if (run.boot_id, run.pid_namespace) != (boot_id(), pid_namespace()):
        return False
    with suppress(OSError):
        return not _is_locked(root / run.id)
    return False


def why_silent(root: Path, run: Run, now_ms: int) -> str:
    """Return why a run's supervisor serves nobody, and what to do; "": it serves.

    Args:
        root: as for `has_died`.
        run: an open one.
        now_ms: the time.
    """
    if has_died(root, run):
        return "it has died; the next supervisor that starts takes its jobs back"
    is_here = holder(root / run.id) == run.pid
    if is_here and _is_stopped(run.pid):
        return f"it is stopped, by SIGSTOP or a debugger: kill -CONT {run.pid}"
    if now_ms < run.lease_until_ms:
        return ""
    silent = f"no word for {show_duration((now_ms - run.heartbeat_at_ms) / 1000)}"
    if is_here:
        return (
            f"{silent}, though its process is there: it cannot write to the store; its "
            "log says why"
        )
    return f"{silent}: look at its log and its host"


def _is_stopped(pid: int) -> bool:
    from jobpool.sandbox.system.procfs import process_stat  # noqa: PLC0415 - Linux's

    found = process_stat(pid)
    return found is not None and found.state in _STOPPED


def _is_locked(folder: Path) -> bool:
    import fcntl  # noqa: PLC0415 - Windows has none

    with (folder / "lock").open("rb") as lock:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(lock, fcntl.F_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
