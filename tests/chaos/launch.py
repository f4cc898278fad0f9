"""Start jobpool's command line with a store clock that the nemesis can shift.

libfaketime is not everywhere, and the machine's clock is not ours to set: the seam is
`SystemClock.utc_ms`, to which a shared page adds milliseconds. Monotonic time is left
alone, as by a real clock that is set.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

OFFSET = struct.Struct("<q")


class ShiftedClock:
    """The page that says by how much."""

    def __init__(self, path):
        with Path(path).open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), OFFSET.size)

    def shift(self, offset_ms):
        """Set the clock so far ahead, or back."""
        self._page[:] = OFFSET.pack(offset_ms)

    def utc_ms(self, _clock=None):
        """Return the shifted time."""
        (offset_ms,) = OFFSET.unpack(self._page[:])
        return time.time_ns() // 1_000_000 + offset_ms


def main():
    """Run the command line."""
    from jobpool.cli import main as jobpool
    from jobpool.core.clock import SystemClock

    SystemClock.utc_ms = ShiftedClock(os.environ["CHAOS_CLOCK"]).utc_ms
    return jobpool()


if __name__ == "__main__":
    sys.exit(main())
