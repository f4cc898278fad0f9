"""The kernel's interface to cgroups: a directory of small files for each."""

from __future__ import annotations

import os
import time


class CgroupFiles:
    """Reads and writes these files; every method raises the kernel's `OSError`.

    A test replaces it by a model of the kernel, for controllers that the machine lacks.
    """

    def read(self, path: str) -> str:
        """Return a file's content."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 1 << 20).decode()
        finally:
            os.close(fd)

    def write(self, path: str, text: str) -> None:
        """Write to an existing file: one write is one command."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def make(self, path: str) -> None:
        """Create a cgroup."""
        os.mkdir(path, 0o700)  # noqa: PTH102 - a str, as everywhere here

    def remove(self, path: str) -> None:
        """Remove a cgroup without members."""
        os.rmdir(path)  # noqa: PTH106 - a str, as everywhere here

    def below(self, path: str) -> list[str]:
        """Return the paths of the cgroups right below one."""
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir()]

    def exists(self, path: str) -> bool:
        """Say whether a file or a cgroup is there."""
        return os.path.lexists(path)

    def age_s(self, path: str) -> float:
        """Return how long ago a child cgroup was last created or removed there."""
        return time.time() - os.stat(path).st_ctime  # noqa: PTH116 - a str
