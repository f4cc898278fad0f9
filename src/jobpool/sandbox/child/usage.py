"""What an attempt has used, measured by its own process: memory and processor time.

The supervisor measures memory itself while an attempt runs. This adds what remains
afterwards, and peaks between two of its samples.
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
        cpu_s: processor seconds, with those of reaped descendants.
        rss_bytes: resident memory now.
        peak_rss_bytes: its peak.
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
        """Discard what was used so far."""
        self._forget_peak()
        self.take(with_children=True)

    def rss_bytes(self) -> int:
        """Return the resident memory now."""
        return statm_bytes(os.pread(self._statm, _STATM_BYTES, 0))

    def take(self, *, with_children: bool) -> Used:
        """Return what was used since the last time.

        Args:
            with_children: processes may have been started below this one.
        """
        own = resource.getrusage(resource.RUSAGE_SELF)
        if with_children:
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
        """Reset the kernel's high-water mark (proc(5), clear_refs)."""
        if self._peak_reset >= 0:
            require(self._peak_reset, self._peak_file)
            os.pwrite(self._peak_reset, b"5", 0)


def _open_peak_reset() -> int:
    """Return a descriptor of clear_refs; -1: the kernel has none."""
    try:
        return open_own("/proc/self/clear_refs", os.O_WRONLY)
    except OSError:
        return -1
