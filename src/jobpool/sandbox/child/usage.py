"""What an attempt has used, as its own process sees it: memory and processor time.

The supervisor measures memory by itself while an attempt runs. What is said here is
what remains of it afterwards, and peaks that fell between two of its looks.
"""

from __future__ import annotations

import os
import resource
from typing import NamedTuple

from jobpool.sandbox.system.own_fds import identity_of, open_own, require
from jobpool.sandbox.system.procfs import statm_bytes

_STATM_BYTES = 128
_KIB = 1024


class Used(NamedTuple):
    """What was used since the last time.

    Attributes:
        cpu_s: processor seconds, of processes below that were waited for as well.
        rss_bytes: what is resident now.
        peak_rss_bytes: the most that was.
    """

    cpu_s: float
    rss_bytes: int
    peak_rss_bytes: int


class Usage:
    """Measures this process."""

    def __init__(self) -> None:
        self._statm = open_own("/proc/self/statm", os.O_RDONLY)
        self._peak_reset = _open_peak_reset()
        self._peak_file = identity_of(self._peak_reset)
        self._cpu_s = self._below_cpu_s = 0.0

    def begin(self) -> None:
        """Let what was used so far be nobody's."""
        self._forget_peak()
        self.take(looking=True)

    def rss_bytes(self) -> int:
        """Return what is resident now."""
        return statm_bytes(os.pread(self._statm, _STATM_BYTES, 0))

    def take(self, *, looking: bool) -> Used:
        """Return what was used since the last time.

        Args:
            looking: processes may have been begun below this one.
        """
        own = resource.getrusage(resource.RUSAGE_SELF)
        if looking:
            below = resource.getrusage(resource.RUSAGE_CHILDREN)
            self._below_cpu_s = below.ru_utime + below.ru_stime
        rss_bytes = self.rss_bytes()
        peak_bytes = max(own.ru_maxrss * _KIB, rss_bytes)
        if peak_bytes > rss_bytes:
            self._forget_peak()
        before_s = self._cpu_s
        self._cpu_s = own.ru_utime + own.ru_stime + self._below_cpu_s
        return Used(self._cpu_s - before_s, rss_bytes, peak_bytes)

    def _forget_peak(self) -> None:
        """Start the kernel's high-water mark anew (proc(5), clear_refs)."""
        if self._peak_reset >= 0:
            require(self._peak_reset, self._peak_file)
            os.pwrite(self._peak_reset, b"5", 0)


def _open_peak_reset() -> int:
    """Return a descriptor of clear_refs, -1 where the kernel has none."""
    try:
        return open_own("/proc/self/clear_refs", os.O_WRONLY)
    except OSError:
        return -1
