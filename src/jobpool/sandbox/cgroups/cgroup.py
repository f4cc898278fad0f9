"""Cgroups (version 2): enter, kill and remove one, and bound a child's.

Everything that a process forks is in its cgroup, and `cgroup.kill` kills all of it at
once. A child that may write to these files (root, or the user to whom the cgroup was
delegated, unless file rules bind it) can move itself out: metering and the walk over
its tree do not depend on cgroups.

Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath

from jobpool.core.isolation.cgroups import Control, memory_max_bytes
from jobpool.sandbox.cgroups.files import CgroupFiles
from jobpool.sandbox.cgroups.location import NoCgroupError
from jobpool.sandbox.metering.sampling import backstop_bytes
from jobpool.sandbox.protocol.verdict import MemoryEvents

PREFIX = "jobpool."
FILES = CgroupFiles()


def join(path: str) -> None:
    """Enter a cgroup, with all threads of this process.

    Args:
        path: its directory; "": do nothing.

    Raises:
        NoCgroupError: the kernel refused; this process is where it was.
    """
    if not path:
        return
    try:
        FILES.write(posixpath.join(path, "cgroup.procs"), "0")
    except OSError as exc:
        raise NoCgroupError(
            f"cannot enter the cgroup that the supervisor has made, {path}: "
            f"{exc.strerror}; leave that cgroup to jobpool alone"
        ) from exc


class Group:
    """A cgroup with everything below it.

    Args:
        path: its directory.
        files: the kernel's files.
    """

    def __init__(self, path: str, files: CgroupFiles = FILES) -> None:
        self.path = path
        self._files = files

    def members(self) -> list[int]:
        """Return the pids of its processes; 0 stands for one of another namespace."""
        try:
            below = self._files.below(self.path)
            found = [int(pid) for pid in self._read("cgroup.procs").split()]
        except OSError:
            return []  # it is gone, or a part of it is not ours
        for path in below:
            found += Group(path, self._files).members()
        return found

    def is_populated(self) -> bool:
        """Say whether a living process is in it; False if it is gone."""
        try:
            return "populated 1" in self._read("cgroup.events").splitlines()
        except OSError:
            return False

    def kill(self) -> bool:
        """Kill everything in it at once; False: it is gone or cannot kill."""
        try:
            self._write("cgroup.kill", "1")
        except OSError:
            return False
        return True

    def remove(self) -> bool:
        """Remove it and everything below; False: it is in use or not ours to remove."""
        try:
            for path in self._files.below(self.path):
                Group(path, self._files).remove()
            self._files.remove(self.path)
        except OSError as exc:
            return exc.errno == errno.ENOENT
        return True

    def _read(self, name: str) -> str:
        return self._files.read(posixpath.join(self.path, name))

    def _write(self, name: str, text: str) -> None:
        self._files.write(posixpath.join(self.path, name), text)


class ChildGroup(Group):
    """The cgroup of one child.

    Args:
        path: its directory, which is created.
        controls: the controls in force.
        memory_bytes: its pool's memory limit; during its setup it may use about twice
            that.
        processes: the most processes and threads in it.
        files: the kernel's files.

    Raises:
        OSError: it could not be created or bounded; nothing is left of it.
    """

    def __init__(
        self,
        path: str,
        controls: tuple[Control, ...],
        *,
        memory_bytes: int,
        processes: int,
        files: CgroupFiles = FILES,
    ) -> None:
        super().__init__(path, files)
        self._has_memory = Control.MEMORY in controls
        self._max_bytes = 0
        files.make(path)
        try:
            if self._has_memory:
                self._write("memory.oom.group", "1")
                # Without swap accounting there is no such file, nor a bound to set.
                with contextlib.suppress(FileNotFoundError):
                    self._write("memory.swap.max", "0")
                self._bound_memory(backstop_bytes(memory_bytes))
            if Control.PIDS in controls:
                self._write("pids.max", str(processes))
        except OSError:
            self.remove()
            raise

    def bound(self, limit_bytes: int) -> None:
        """Set ``memory.max`` above an attempt's memory limit, if it changed.

        Raises:
            OSError: the kernel refused; the former bound holds.
        """
        if self._has_memory:
            self._bound_memory(memory_max_bytes(limit_bytes))

    def memory_events(self) -> MemoryEvents | None:
        """Return the kernel's out-of-memory events here; None: they are not counted."""
        if not self._has_memory:
            return None
        try:
            counts = dict(
                line.split() for line in self._read("memory.events").splitlines()
            )
        except OSError:
            return None
        return MemoryEvents(
            oom=int(counts.get("oom", 0)),
            oom_kills=int(counts.get("oom_kill", 0)),
            max_bytes=self._max_bytes,
            peak_bytes=self._peak_bytes(),
        )

    def _bound_memory(self, max_bytes: int) -> None:
        if max_bytes != self._max_bytes:
            self._write("memory.max", str(max_bytes))
            self._max_bytes = max_bytes

    def _peak_bytes(self) -> int:
        """Return its peak memory; 0 before Linux 5.19."""
        try:
            return int(self._read("memory.peak"))
        except OSError:
            return 0


def read_group(record: str, run_id: str) -> Group | None:
    """Return the cgroup that a run has recorded; None: it is gone or not the run's.

    Children can write to the record. At worst that kills a cgroup that bears the name
    of this same run.
    """
    if posixpath.basename(record) != f"{PREFIX}{run_id}" or not os.path.isabs(record):  # noqa: PTH117 - a str
        return None
    group = Group(record)
    return group if FILES.exists(posixpath.join(record, "cgroup.procs")) else None
