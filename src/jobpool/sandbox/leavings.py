"""What an enclosed child's attempts can leave outside of the child's directory.

All of it ends with the child's namespaces. Until then the next attempt could read it,
and misses the room that it takes.
"""

from __future__ import annotations

import ctypes
import os

from jobpool.sandbox.view import WRITABLE

_SYSV = ("shm", "msg", "sem")
_SHM_INFO, _MSG_INFO, _SEM_INFO = 14, 12, 19
_SEMAPHORES_AT = 7
_INFO_INTS = 64  # far more than any of the three answers holds
_libc = ctypes.CDLL(None)
_shmctl, _msgctl, _semctl = _libc.shmctl, _libc.msgctl, _libc.semctl


def things() -> frozenset[str]:
    """Return the names of files, and of System V shared memory, queues, semaphores."""
    found = [f"{above}/{name}" for above in WRITABLE for name in _names(above)]
    if not _has_sysv():
        return frozenset(found)
    return frozenset(found).union(*map(_sysv, _SYSV))


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are what we want
    except FileNotFoundError:
        return []


def _has_sysv() -> bool:
    """Ask the kernel for the numbers of these objects; it is quicker than any list.

    An answer that is missing says nothing: the list will do.
    """
    told = (ctypes.c_int * _INFO_INTS)()
    if _shmctl(0, _SHM_INFO, told) < 0 or told[0]:
        return True
    if _msgctl(0, _MSG_INFO, told) < 0 or told[0]:
        return True
    return _semctl(0, 0, _SEM_INFO, told) < 0 or told[_SEMAPHORES_AT] != 0


def _sysv(kind: str) -> set[str]:
    """Return a name for each object of a kind; none where the kernel has no such."""
    try:
        with open(f"/proc/sysvipc/{kind}", "rb", buffering=0) as file:  # noqa: PTH123 - quick
            _heading, *lines = file.read().splitlines()
    except FileNotFoundError:
        return set()
    return {f"System V {kind} {int(line.split()[1])}" for line in lines}
