"""What an enclosed child's attempts can leave outside of the child's directory.

All of it ends with the child's namespaces. Until then the next attempt could read it,
and misses the room that it takes.
"""

from __future__ import annotations

import os

from jobpool.sandbox.view import WRITABLE

_SYSV = ("shm", "msg", "sem")


def things() -> frozenset[str]:
    """Return the names of files, and of System V shared memory, queues, semaphores."""
    found = [f"{above}/{name}" for above in WRITABLE for name in _names(above)]
    return frozenset(found).union(*map(_sysv, _SYSV))


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are what we want
    except FileNotFoundError:
        return []


def _sysv(kind: str) -> set[str]:
    """Return a name for each object of a kind; none where the kernel has no such."""
    try:
        with open(f"/proc/sysvipc/{kind}", "rb", buffering=0) as file:  # noqa: PTH123 - quick
            _heading, *lines = file.read().splitlines()
    except FileNotFoundError:
        return set()
    return {f"System V {kind} {int(line.split()[1])}" for line in lines}
