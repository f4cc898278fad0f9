"""Waking this host's supervisors through a FIFO that each keeps beside the database.

Theory of operation: a supervisor makes ``<database file>.run/<run id>/wake`` and
holds its reading end. Whoever has committed work writes one byte into every such
FIFO without ever blocking: a full one is rung already, one without a reader
belongs to a supervisor that is gone. Writing ends are kept open; a run's FIFO is
opened when its directory is first seen and closed when that is gone.

A ring is only a hint, so nothing here can fail a commit that has happened.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

LOCK_S = 0.1
_WAKE_BYTE = b"\0"


class Waker:
    """The writing ends of all wake-up FIFOs below one run directory. Thread-safe."""

    def __init__(self, run_root: Path) -> None:
        self._run_root = run_root
        self._fds: dict[str, int] = {}
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Wake every supervisor that listens; never blocks, never raises."""
        try:
            runs = os.listdir(self._run_root)  # noqa: PTH208 - half the time
        except OSError:
            runs = []
        # A copy of a process that forked while a thread rang keeps the lock for ever.
        if not self._lock.acquire(timeout=LOCK_S):
            return
        try:
            for gone in self._fds.keys() - set(runs):
                os.close(self._fds.pop(gone))
            for run in runs:
                self._wake_one(run)
        finally:
            self._lock.release()

    def _wake_one(self, run: str) -> None:
        fd = self._fds.get(run)
        try:
            if fd is None:
                fd = os.open(
                    self._run_root / run / "wake",
                    os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW,
                )
                self._fds[run] = fd
            os.write(fd, _WAKE_BYTE)
        except BlockingIOError:
            return  # Full: it has been rung and not yet looked.
        except OSError:
            # No FIFO yet (ENOENT) or nobody reads it (ENXIO, EPIPE).
            if fd is not None:
                os.close(self._fds.pop(run))

    def close(self) -> None:
        """Close the writing ends; a later ring opens them again."""
        with self._lock:
            while self._fds:
                with contextlib.suppress(OSError):
                    os.close(self._fds.popitem()[1])
