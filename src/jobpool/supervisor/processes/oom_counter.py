"""Whether the kernel has killed anything for lack of memory since the last check.

A SIGKILL that was not ours counts as its job's crash, unless the host ran out of memory
meanwhile: then the kernel chose a victim, and the job is not charged.

Source: ``oom_kill`` in /proc/vmstat, readable by all users, counts for the host.
"""

from __future__ import annotations

from pathlib import Path


class HostOom:
    """Remembers the kernel's count."""

    def __init__(self, vmstat: Path = Path("/proc/vmstat")) -> None:
        self._vmstat = vmstat
        self._last = self._count()

    def rose(self) -> bool:
        """Say whether the count rose since the last call."""
        before, self._last = self._last, self._count()
        return self._last > before

    def _count(self) -> int:
        """Return the count; 0 where the kernel does not provide it."""
        try:
            text = self._vmstat.read_text(encoding="ascii")
        except OSError:
            return 0
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
        return 0
