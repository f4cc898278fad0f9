"""The soft memory limit in the child: raised once, and only in the attempt meant.

Theory of operation. The supervisor measures and sends a signal, again and again while
the attempt is over the limit: one can be lost just before a blocking call. A signal may
also come late, when its attempt has ended. So the child decides on what it sees at that
moment: the limit of the present attempt, if there is one and it was not raised yet, and
the memory of this process and all below it.
"""

from __future__ import annotations

import os
from types import FrameType

from jobpool.core.units import show_size
from jobpool.errors import SoftMemory
from jobpool.sandbox.system.procfs import descendants_of, resident_bytes


class SoftMemoryGuard:
    """Raises `SoftMemory` in the handler that is running."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._limit_bytes: int | None = None

    def arm(self, limit_bytes: int | None) -> None:
        """Begin an attempt; None: it has no soft limit, or could not handle it."""
        self._limit_bytes = limit_bytes

    def disarm(self) -> None:
        """Raise no more: the attempt has ended, or this is a forked copy."""
        self._limit_bytes = None

    def on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        """Raise if this attempt is over its limit now."""
        limit = self._limit_bytes
        if limit is None or os.getpid() != self._pid:
            return
        seen = resident_bytes(self._pid)
        if seen <= limit:
            seen += sum(resident_bytes(pid) for pid in descendants_of(self._pid))
        if seen <= limit or self._limit_bytes is None:
            return
        self._limit_bytes = None
        raise SoftMemory(
            f"{show_size(seen)} are in use, over the soft memory limit of "
            f"{show_size(limit)}; let go of what you can, or save what matters and "
            "return: at the hard limit the process is killed"
        )
