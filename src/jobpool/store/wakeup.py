"""Wakes this host's supervisors through a FIFO that each keeps beside the database.

Theory of operation: a supervisor creates ``<database file>.run/<run id>/wake`` and
holds its read end. A process that has committed work writes one byte into each FIFO,
without ever blocking: a full one has a wake-up waiting in it, and one without a reader
belongs to a supervisor that is gone. Write ends are kept open; a run's FIFO is opened
when its directory is first seen and closed when that is gone.

A wake-up is only a hint, so nothing here can fail a commit that has happened.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

LOCK_S = 0.1
_WAKE_BYTE = b"\0"


class Waker:
    """The write ends of all wake-up FIFOs below one run directory. Thread-safe."""

    def __init__(self, run_root: Path) -> None:
        self._run_root = run_root
        self._fds: dict[str, int] = {}
        self._lock = threading.Lock()

    def wake(self) -> None:
        """Wake every supervisor that listens; never blocks, never raises."""
        if not hasattr(os, "mkfifo"):
            return  # There are neither FIFOs nor supervisors on Windows.
        try:
            runs = os.listdir(self._run_root)  # noqa: PTH208 - half the time
        except OSError:
            runs = []
        # A process forked while another thread was in here inherits a locked lock.
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
                    os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW,
                )
                self._fds[run] = fd
            os.write(fd, _WAKE_BYTE)
        except BlockingIOError:
            return  # Full: a wake-up is waiting to be read.
        except OSError:
            # No FIFO yet (ENOENT) or no reader (ENXIO, EPIPE).
            if fd is not None:
                os.close(self._fds.pop(run))

    def close(self) -> None:
        """Close the write ends; the next `wake` opens them again."""
        with self._lock:
            while self._fds:
                with contextlib.suppress(OSError):
                    os.close(self._fds.popitem()[1])
