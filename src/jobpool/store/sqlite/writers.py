"""The writers' lock: one writer at a time among all of jobpool's processes.

Theory of operation. SQLite before 3.51.3 (3.50.7, 3.44.6) can lose pages of a WAL
database when one connection commits and resets the WAL while another checkpoints.
jobpool's writers therefore hold this lock around each write transaction, with the
checkpoint that a commit may run, and around closing a connection. It also keeps
producers out of SQLite's busy handler, whose pauses grow to 100 ms and starve
whoever has waited longest.

The lock is two: a thread lock within the process, then a POSIX record lock on
``<database>-jobpool-lock``. The record lock belongs to the process and is dropped
when *any* descriptor of the file is closed in it, so the file is opened once a
process, here. A fork inherits neither lock; the child starts anew. A flock would
be inherited, and held by a child for as long as it lives.

Order: writers' lock, then a store's own thread lock, then SQLite's. It is never
taken inside a transaction that a caller has begun: that would be the other order.

The record lock is polled: a process that was stopped while it held the lock must
not stop every other one for ever, and F_SETLKW has no timeout.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobpool.errors import StoreUnavailable, UsageError

SUFFIX = "-jobpool-lock"
WAIT_S = 10.0
"""So long may one writer keep another one waiting."""
_POLL_S = 0.0005


class WritersLock:
    """The lock of one database file within this process."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._path = database + SUFFIX
        self._fd: int | None = None
        self._thread_lock = threading.Lock()
        self._owner: int | None = None
        self.users = 0

    @contextmanager
    def held(self, wait_s: float | None = None) -> Iterator[None]:
        """Hold the lock; nobody else of jobpool's writes meanwhile.

        Args:
            wait_s: longest wait for others, in seconds; None: `WAIT_S`.

        Raises:
            StoreUnavailable: somebody held it for longer; nothing was done.
            UsageError: this thread holds it already, by another store object or
                another connection; waiting would never end.
        """
        if self._owner == threading.get_ident():
            raise UsageError(
                f"this thread is already in a transaction on {self._database}; "
                "join it (pass connection=..., or use the same store), or end it first"
            )
        if wait_s is None:
            wait_s = WAIT_S
        deadline_s = time.monotonic() + wait_s
        if not self._thread_lock.acquire(timeout=wait_s):
            raise self._too_long("another thread of this process", wait_s)
        try:
            fd = self._lock_file(deadline_s, wait_s)
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None
                # In a child forked meanwhile the file is closed and nothing is held.
                if self._fd == fd:
                    fcntl.lockf(fd, fcntl.LOCK_UN)
        finally:
            self._thread_lock.release()

    def _lock_file(self, deadline_s: float, wait_s: float) -> int:
        while True:
            try:
                fd = self._open()
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                # POSIX lets a taken lock be EACCES; the file itself was checked.
                if time.monotonic() >= deadline_s:
                    raise self._too_long("another process", wait_s) from error
                time.sleep(_POLL_S)
            except OSError as error:
                raise StoreUnavailable(
                    f"the lock file {self._path} cannot be used ({error.strerror}); "
                    "check that its directory may be written by this user"
                ) from error
            else:
                if self._is_current(fd):
                    return fd
                self.close()  # Somebody removed the file: the others lock a new one.

    def _open(self) -> int:
        if self._fd is None:
            mode = Path(self._database).stat().st_mode & 0o666
            fd = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode
            )
            self._fd = fd
            found = os.fstat(fd)
            if found.st_mode & 0o666 != mode and found.st_uid == os.geteuid():
                os.fchmod(fd, mode)  # Whoever may write the database may lock it.
        return self._fd

    def _is_current(self, fd: int) -> bool:
        try:
            named = os.stat(self._path)  # noqa: PTH116 - a third of Path.stat's time
        except FileNotFoundError:
            return False
        opened = os.fstat(fd)
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def _too_long(self, who: str, wait_s: float) -> StoreUnavailable:
        return StoreUnavailable(
            f"{who} has held the writers' lock {self._path} for {wait_s:g} s; is it "
            "stopped (SIGSTOP, debugger) or in a long transaction? Find it with "
            "`lslocks` and let it go on or end it"
        )

    def close(self) -> None:
        """Close the lock file; the next holder opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class _Registry:
    """The locks of this process, by database file."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.locks: dict[str, WritersLock] = {}

    def forget(self) -> None:
        """Start anew in a forked child: the parent's locks are not ours.

        Closing the inherited descriptors drops no lock, since the child holds none.
        """
        for lock in self.locks.values():
            lock.close()
        self.guard = threading.Lock()
        self.locks = {}


_REGISTRY = _Registry()
os.register_at_fork(after_in_child=_REGISTRY.forget)


def share_lock(database: str) -> WritersLock:
    """Return this process's lock of a database file; `return_lock` when done.

    Args:
        database: the file's real path.
    """
    with _REGISTRY.guard:
        lock = _REGISTRY.locks.setdefault(database, WritersLock(database))
        lock.users += 1
        return lock


def return_lock(lock: WritersLock, database: str) -> None:
    """Give a shared lock back; the last one to do so closes its file."""
    with _REGISTRY.guard:
        lock.users -= 1
        if not lock.users and _REGISTRY.locks.get(database) is lock:
            del _REGISTRY.locks[database]
            lock.close()
