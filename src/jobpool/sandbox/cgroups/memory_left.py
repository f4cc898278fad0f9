"""How much memory this process and its children may still use: host and cgroup.

A container's limit is its cgroup's, and the limits of all ancestors hold. What a cgroup
has in page cache and reclaimable slabs is counted as available, as the kernel does in
MemAvailable: it gives that up before it kills. Version 1 of cgroups is not looked at.

Source: kernel documentation, cgroup-v2, memory interface files; proc_meminfo(5).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jobpool.sandbox.cgroups import location
from jobpool.sandbox.cgroups.files import CgroupFiles
from jobpool.sandbox.system.reserve_fds import with_reserve
from jobpool.sandbox.system.resources import memory

_RECLAIMED = frozenset({"active_file", "inactive_file", "slab_reclaimable"})


class Left(NamedTuple):
    """What is left of what there is, in bytes."""

    available_bytes: int
    total_bytes: int


def _available(left: Left) -> tuple[float, int]:
    return 0.0, left.available_bytes


class MemoryLeft:
    """Looks at the host's memory and at the cgroups that this process is in.

    Args:
        folders: of these cgroups; None: find them.
        files: reads them.
        scarcity: what has the lowest value of it is the scarcest.
    """

    def __init__(
        self,
        folders: Sequence[str] | None = None,
        files: CgroupFiles | None = None,
        *,
        scarcity: Callable[[Left], tuple[float, int]] = _available,
    ) -> None:
        self._scarcity = scarcity
        self._files = files or CgroupFiles()
        self._folders = self._find() if folders is None else tuple(folders)

    def look(self) -> Left:
        """Return the scarcest: what the host has left, or one of the cgroups.

        Raises:
            OSError: no descriptor is left to read with, not even a reserved one.
        """
        host = memory()
        cgroups = filter(None, map(self._of, self._folders))
        return min((Left(host.available, host.total), *cgroups), key=self._scarcity)

    def _of(self, folder: str) -> Left | None:
        """Return what a cgroup has left; None: it has no limit, or is gone."""
        try:
            most = self._read(folder, "memory.max")
            if not most.isdigit():
                return None
            used_bytes = int(self._read(folder, "memory.current"))
            stat = self._read(folder, "memory.stat")
        except (FileNotFoundError, PermissionError):
            return None
        pairs = (line.split() for line in stat.splitlines())
        cache_bytes = sum(int(pair[1]) for pair in pairs if pair[0] in _RECLAIMED)
        free_bytes = int(most) - used_bytes + cache_bytes
        return Left(max(0, min(free_bytes, int(most))), int(most))

    def _read(self, folder: str, name: str) -> str:
        return with_reserve(self._files.read, posixpath.join(folder, name)).strip()

    def _find(self) -> tuple[str, ...]:
        """Return this process's cgroup and its ancestors, as far as they are visible.

        The root has no limits, nor the files that say them.
        """
        try:
            folder = location.here()
        except location.NoCgroupError:
            return ()
        found = []
        while self._files.exists(posixpath.join(folder, "memory.max")):
            found.append(folder)
            folder = posixpath.dirname(folder)
        return tuple(found)
