"""Finds out whether this process itself holds SQLite's write lock.

Theory of operation. A transaction that this process has open on another connection
blocks our writes like any other program's. If this is the only thread, waiting for it
would never end; the kernel's table of locks shows that. With several threads it may
belong to another one, which will end it: we wait, and name it in the error if it does
not end. The files themselves must not be opened here: closing a descriptor would drop
the locks that SQLite has on the file in this process.

Source: https://www.sqlite.org/walformat.html, "Locks"; proc_locks(5).
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from jobpool.errors import StoreUnavailable, UsageError
from jobpool.store.sqlite.connection.location import identity_of

_LOCKS = Path("/proc/locks")
_WAL_WRITE_LOCK = 120
"""The write lock's byte in the -shm file."""
_RESERVED = 0x40000001
"""Without a write-ahead log: the lock's byte in the database file."""
_REMEDY = (
    "pass that connection, with .options(connection=...), so that the job belongs to "
    "its transaction, or enqueue after its end (in Django: transaction.on_commit)"
)


def refuse_deadlock(path: str) -> None:
    """Refuse to wait for a transaction that only this thread can end.

    Raises:
        UsageError: a connection of this thread has it open.
    """
    others = [
        one for one in threading.enumerate() if not one.name.startswith("jobpool-")
    ]
    if len(others) <= 1 and holds_write_lock(path):
        raise UsageError(
            f"this thread has a transaction open on {path}, on another connection: "
            f"waiting for it would never end. Nothing was written. Instead {_REMEDY}"
        )


def held_here(path: str, waited_s: float) -> StoreUnavailable | None:
    """Return an error if this process itself holds the lock that was waited for."""
    if not holds_write_lock(path):
        return None
    return StoreUnavailable(
        f"another connection of this process has had a transaction open on {path} for "
        f"longer than {waited_s:g} s; nothing was written. If it is this thread's, "
        f"{_REMEDY}; if another thread's, let it commit sooner"
    )


def holds_write_lock(path: str) -> bool:
    """Say whether this process holds the write lock of a database file.

    Also False where the kernel has no table of locks.
    """
    places = {
        identity[1]: byte
        for name, byte in ((f"{path}-shm", _WAL_WRITE_LOCK), (path, _RESERVED))
        if (identity := identity_of(name))
    }
    try:
        table = _LOCKS.read_text()
    except OSError:
        return False
    me = str(os.getpid())
    for line in table.splitlines():
        # 1: POSIX  ADVISORY  WRITE 4711 fd:00:262154 120 120
        _, kind, *_, mode, pid, place, first, last = line.split()
        byte = places.get(int(place.rpartition(":")[2]))
        if (kind, mode, pid) != ("POSIX", "WRITE", me) or byte is None:
            continue
        if int(first) <= byte and (last == "EOF" or byte <= int(last)):
            return True
    return False
