"""The writers' lock: one writer at a time among all of jobpool's processes.

Theory of operation. SQLite before 3.51.3 (3.50.7, 3.44.6) can lose pages of a WAL
database when one connection commits and resets the WAL while another checkpoints. So
jobpool's writers hold this lock around each write transaction, including the checkpoint
that a commit may run or that follows a large one, and around closing a connection. It
also keeps producers out of SQLite's busy handler, whose pauses grow to 100 ms and
starve the longest waiter.

It consists of two locks: a thread lock within the process, then a record lock on
``<database>-jobpool-lock`` (see `record_lock`), one for each process and file. A fork
inherits neither; the child creates its own. A flock would be inherited, and held by a
child for as long as it lives.

Order: writers' lock, then a store's own thread lock, then SQLite's. It is never taken
inside a transaction that a caller has begun: that would reverse the order.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from jobpool.errors import StoreUnavailable, UsageError
from jobpool.store.sqlite.connection.record_lock import RecordLock

SUFFIX = "-jobpool-lock"
WAIT_S = 10.0
"""The longest that a writer waits for others."""


class WritersLock:
    """The lock of one database file within this process."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._record = RecordLock(database + SUFFIX, mode_of=database)
        self._thread_lock = threading.Lock()
        self._owner: int | None = None
        self.users = 0

    @contextmanager
    def held(self, wait_s: float | None = None) -> Iterator[None]:
        """Hold the lock: no other writer of jobpool's writes in the meantime.

        Args:
            wait_s: longest wait for others, in seconds; None: `WAIT_S`.

        Raises:
            StoreUnavailable: another writer held it for longer; nothing was done.
            UsageError: this thread already holds it, through another store object or
                connection; waiting would never end.
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
            self._take_record(max(0.0, deadline_s - time.monotonic()), wait_s)
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None
                self._record.drop()
        finally:
            self._thread_lock.release()

    def _take_record(self, left_s: float, wait_s: float) -> None:
        try:
            is_taken = self._record.take(left_s)
        except OSError as error:
            raise StoreUnavailable(
                f"the lock file {self._record.path} cannot be used "
                f"({error.strerror}); check that its directory may be written by this "
                "user"
            ) from error
        if not is_taken:
            raise self._too_long("another process", wait_s)

    def _too_long(self, who: str, wait_s: float) -> StoreUnavailable:
        return StoreUnavailable(
            f"{who} has held the writers' lock {self._record.path} for {wait_s:g} s; "
            "is it stopped (SIGSTOP, debugger) or in a long transaction? Find it with "
            "`lslocks`, and continue or end it"
        )

    @property
    def is_awaited(self) -> bool:
        """Whether a caller that timed out has left a waiting thread behind."""
        return self._record.is_awaited

    def close(self) -> None:
        """Close the lock file; the next holder opens it again."""
        self._record.close()


class _Registry:
    """This process's locks, by database file."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.locks: dict[str, WritersLock] = {}

    def forget(self) -> None:
        """Start with no locks in a forked child: the parent's locks are not ours.

        Closing the inherited descriptors drops no lock, since the child holds none.
        """
        for lock in self.locks.values():
            lock.close()
        self.guard = threading.Lock()
        self.locks = {}


_REGISTRY = _Registry()
if hasattr(os, "register_at_fork"):  # on Windows nothing forks
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
    """Return a shared lock; the last user closes its file."""
    with _REGISTRY.guard:
        lock.users -= 1
        # While a thread waits on the file it must stay open, and be the only one.
        if lock.users or lock.is_awaited:
            return
        if _REGISTRY.locks.get(database) is lock:
            del _REGISTRY.locks[database]
            lock.close()
