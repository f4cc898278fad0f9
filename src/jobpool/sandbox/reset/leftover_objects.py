"""What an enclosed child's attempts can leave outside the child's directory.

It all ends with the child's namespaces. Until then the next attempt could read it, and
lacks the space that it takes.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from jobpool.core.units import show_size
from jobpool.sandbox.confinement.mounts import WRITABLE

_FILES_KEPT_MAX = 64
"""Empty files: as many as descriptors. Landlock keeps the child's first directory."""
_SYSV = ("shm", "msg", "sem")
_SHM_INFO, _MSG_INFO, _SEM_INFO = 14, 12, 19
_SEMAPHORES_AT = 7
_INFO_INTS = 64  # far more than any of the three answers holds
_libc = ctypes.CDLL(None)
_shmctl, _msgctl, _semctl = _libc.shmctl, _libc.msgctl, _libc.semctl


class FreeSpace(NamedTuple):
    """The space that is free where an enclosed child may write."""

    free_bytes: int
    free_files: int

    def kept(self, now: FreeSpace) -> str:
        """Name what is missing of it; ``""``: no more than is tolerated."""
        if now.free_bytes < self.free_bytes:
            size = show_size(self.free_bytes - now.free_bytes)
            return f"it keeps {size} of its TMPDIR, in files deleted but not closed"
        files = self.free_files - now.free_files
        if files > _FILES_KEPT_MAX:
            return f"it keeps {files} files in its TMPDIR, deleted but not closed"
        return ""


def free_space() -> FreeSpace:
    """Return the free space. Files deleted but still open take some, without a name."""
    status = os.statvfs("/")  # the view's root, which holds all of `WRITABLE`
    return FreeSpace(status.f_bfree * status.f_frsize, status.f_ffree)


def leftover_names() -> frozenset[str]:
    """Return the names of files and of System V shared memory, queues, semaphores."""
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
    """Say whether the kernel counts any such object, which is quicker than a list.

    True if it does not report a count: then the list decides.
    """
    counts = (ctypes.c_int * _INFO_INTS)()
    if _shmctl(0, _SHM_INFO, counts) < 0 or counts[0]:
        return True
    if _msgctl(0, _MSG_INFO, counts) < 0 or counts[0]:
        return True
    return _semctl(0, 0, _SEM_INFO, counts) < 0 or counts[_SEMAPHORES_AT] != 0


def _sysv(kind: str) -> set[str]:
    """Return a name for each object of a kind; none if the kernel lacks the kind."""
    try:
        with open(f"/proc/sysvipc/{kind}", "rb", buffering=0) as file:  # noqa: PTH123 - quick
            _heading, *lines = file.read().splitlines()
    except FileNotFoundError:
        return set()
    return {f"System V {kind} {int(line.split()[1])}" for line in lines}
