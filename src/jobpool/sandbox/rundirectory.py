"""The run directory: what a supervisor leaves on disk about its own processes.

Theory of operation. ``<root>/<run id>/`` holds a lock file, locked for as long as
the supervisor lives; the slot file, a header and one fixed-size record a slot,
written by the supervisor alone; a mark file a slot; a FIFO by which producers wake
the supervisor; and the children's temporary directories. A later supervisor reads
it to prove this one dead (`proof`); nobody needs it while all is well.

The lock is fcntl's: it belongs to this process alone, is not inherited by forks,
and vanishes when the process does, however it ends. It would also vanish if this
process opened and closed the lock file once more: `held_runs` tells it not to.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from jobpool.sandbox.procfs import boot_id, pid_namespace, process_start_time

HEADER_BYTES = 512
_RECORD = struct.Struct("<qQ")
_held: set[tuple[int, str]] = set()
"""Pids and runs: a fork of this process holds none of its locks."""


class Header(msgspec.Struct, frozen=True):
    """Whose run directory it is."""

    run_id: str
    pid: int
    start_time: int
    boot_id: str
    pid_namespace: int


def held_runs() -> frozenset[str]:
    """Return the runs whose lock this process holds."""
    return frozenset(run_id for pid, run_id in _held if pid == os.getpid())


class RunDirectory:
    """This supervisor's run directory; a context manager that removes it.

    Attributes:
        run_id: the run.
        path: the directory.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self.run_id = run_id
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._lock = os.open(path / "lock", flags, 0o600)
        fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _held.add((os.getpid(), run_id))
        header = Header(
            run_id,
            os.getpid(),
            process_start_time(os.getpid()) or 0,
            boot_id(),
            pid_namespace(),
        )
        self._slots = os.open(path / "slots", flags, 0o600)
        os.pwrite(self._slots, msgspec.json.encode(header).ljust(HEADER_BYTES), 0)
        self._wake = -1

    @classmethod
    def create(cls, root: str | Path, run_id: str) -> RunDirectory:
        """Make the directory, for its owner only, and take its lock.

        Raises:
            OSError: it cannot be made.
        """
        Path(root).mkdir(mode=0o700, exist_ok=True)
        path = Path(root, run_id)
        path.mkdir(mode=0o700)
        directory = cls(path, run_id)
        directory.tmp_root.mkdir(mode=0o700)
        return directory

    @property
    def tmp_root(self) -> Path:
        """Where the children's temporary directories are."""
        return self.path / "tmp"

    def mark_path(self, slot: int) -> str:
        """Return the path of a slot's mark file."""
        return str(self.path / f"mark.{slot}")

    def write_slot(self, slot: int, pid: int, start_time: int) -> None:
        """Put a slot's child on record; pid 0: it has none.

        Args:
            slot: the slot's number.
            pid: its child.
            start_time: the child's start, in clock ticks since boot.

        Raises:
            OSError: it could not be written; the child must not be let go.
        """
        offset = HEADER_BYTES + slot * _RECORD.size
        os.pwrite(self._slots, _RECORD.pack(pid, start_time), offset)

    def open_wake(self) -> int:
        """Make the FIFO that producers ring, and return its reading end.

        It is opened for writing too, so that it never reads as ended.
        """
        path = self.path / "wake"
        os.mkfifo(path, 0o600)
        self._wake = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._wake

    def remove(self) -> None:
        """Remove the directory, then let its lock go."""
        shutil.rmtree(self.path, ignore_errors=True)
        for fd in (self._wake, self._slots, self._lock):
            if fd >= 0:
                os.close(fd)
        self._wake = self._slots = self._lock = -1
        _held.discard((os.getpid(), self.run_id))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove it."""
        self.remove()


def read_header(path: Path) -> Header:
    """Return whose run directory it is.

    Raises:
        OSError: there is none, or it cannot be read.
        ValueError: it is damaged.
    """
    with (path / "slots").open("rb") as file:
        return msgspec.json.decode(file.read(HEADER_BYTES).rstrip(), type=Header)


def read_slots(path: Path) -> Iterator[tuple[int, int]]:
    """Yield pid and start time of every child on record."""
    body = (path / "slots").read_bytes()[HEADER_BYTES:]
    whole = len(body) - len(body) % _RECORD.size
    for pid, start_time in _RECORD.iter_unpack(body[:whole]):
        if pid > 0:
            yield pid, start_time


def remove_run(root: str | Path, run_id: str) -> None:
    """Remove the directory of a run that was proven dead and reclaimed."""
    shutil.rmtree(Path(root, run_id), ignore_errors=True)
