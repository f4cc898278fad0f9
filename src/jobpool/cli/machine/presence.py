"""Whether a supervisor of this machine is alive: its lock is tested, never taken.

Taking the lock, even for a moment, could make a start or a proof of death fail.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from jobpool.sandbox.runs.run_directory import read_header
from jobpool.sandbox.system.procfs import boot_id, pid_namespace
from jobpool.store.records.runs import Run

_FLOCK = struct.Struct("hhqqi")
"""``struct flock`` as the C library lays it out: type, whence, start, length, pid."""


def holder(folder: Path) -> int | None:
    """Return the pid of the living supervisor of a run directory, if there is one."""
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
    if (run.boot_id, run.pid_namespace) != (boot_id(), pid_namespace()):
        return False
    with suppress(OSError):
        return not _is_locked(root / run.id)
    return False


def why_not_alive(root: Path, run: Run, now_ms: int) -> str:
    """Return what shows that a run's supervisor is not alive; "": nothing does.

    Args:
        root: as for `has_died`.
        run: an open one.
        now_ms: the time.
    """
    if has_died(root, run):
        return "it has died; the next supervisor that starts takes its jobs back"
    return "" if run.lease_until_ms > now_ms else "its lease is over"


def _is_locked(folder: Path) -> bool:
    with (folder / "lock").open("rb") as lock:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(lock, fcntl.F_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
