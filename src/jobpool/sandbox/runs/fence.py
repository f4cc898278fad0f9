"""The fence: until when a run's children may run, as its zygotes see it.

Theory of operation. In a store that several hosts share, a supervisor ends its attempts
before their leases expire. A supervisor that is stopped itself (SIGSTOP, a debugger, a
freezer) cannot. So it writes a time a little before the expiry to a file; its zygotes
check the file while they have children, and end them when the time has passed. The
clock continues while the machine sleeps.
"""

from __future__ import annotations

import os
import struct

from jobpool.core.clock import boottime_s

RECENTLY_S = 5.0
"""By then a child that a zygote has ended is reaped."""
_MOMENT = struct.Struct("=d")


class Fence:
    """The fence's file, on either side.

    Args:
        path: of the file.
        make: create it; for the supervisor's side.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, *, make: bool = False) -> None:
        flags = os.O_RDWR | os.O_CREAT if make else os.O_RDONLY
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._passed_s = float("-inf")
        """When the fence was last moved after it had passed."""

    def move(self, until_s: float) -> None:
        """Set until when children may run, as a time since boot."""
        if self.left_s() <= 0:
            self._passed_s = boottime_s()
        os.pwrite(self._fd, _MOMENT.pack(until_s), 0)

    def left_s(self) -> float:
        """Return how long they may still run; infinity if the fence was never set."""
        data = os.pread(self._fd, _MOMENT.size, 0)
        if len(data) < _MOMENT.size:
            return float("inf")
        (until_s,) = _MOMENT.unpack(data)
        return float(until_s) - boottime_s()

    def passed_recently(self) -> bool:
        """Say whether a zygote may just have ended children."""
        return self.left_s() <= 0 or boottime_s() - self._passed_s < RECENTLY_S

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._fd
