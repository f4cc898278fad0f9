"""The fence: until when a run's children may run, for its zygotes to see.

Theory of operation. In a store that several hosts share, a supervisor ends what it
runs before its leases do. A supervisor that is stopped itself (SIGSTOP, a debugger, a
freezer) cannot. So it writes the moment to a file, a little before that end, and its
zygotes, which look at it while they have children, end them when it has passed. The
clock is the one that goes on while the machine sleeps.
"""

from __future__ import annotations

import os
import struct

from jobpool.core.clock import boottime_s

RECENTLY_S = 5.0
"""A child that a zygote has ended is buried by then."""
_MOMENT = struct.Struct("=d")


class Fence:
    """The file, on either side.

    Args:
        path: of the file.
        make: make it: the supervisor's side.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, *, make: bool = False) -> None:
        flags = os.O_RDWR | os.O_CREAT if make else os.O_RDONLY
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._passed_s = float("-inf")
        """When it was last moved although it had passed."""

    def move(self, until_s: float) -> None:
        """Say until when leases hold, as a time since boot."""
        if self.left_s() <= 0:
            self._passed_s = boottime_s()
        os.pwrite(self._fd, _MOMENT.pack(until_s), 0)

    def left_s(self) -> float:
        """Return for how long they hold; endless before it was ever said."""
        data = os.pread(self._fd, _MOMENT.size, 0)
        if len(data) < _MOMENT.size:
            return float("inf")
        (until_s,) = _MOMENT.unpack(data)
        return float(until_s) - boottime_s()

    def passed_recently(self) -> bool:
        """Say whether a zygote may just have ended children, as far as we can know."""
        return self.left_s() <= 0 or boottime_s() - self._passed_s < RECENTLY_S

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._fd
