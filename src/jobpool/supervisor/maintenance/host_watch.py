"""What this host has free, and what programs on it wait for."""

from __future__ import annotations

from jobpool.core.clock import Clock
from jobpool.core.rules.run_report import HostReport
from jobpool.sandbox.system.pressure import some_avg10, swapped_pages
from jobpool.sandbox.system.resources import Processors, memory

SWAPPING_PAGES_PER_S = 64
"""So many pages a second, to the disk or from there: 256 KiB of the usual size. A page
that nobody has touched for days comes back now and then."""


class HostWatch:
    """Looks at the host; each look tells what happened since the one before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_s = clock.monotonic_s()
        self._swapped = swapped_pages()
        self._processors = Processors()

    def look(self) -> HostReport:
        """Return how the host is; it needs one descriptor at a time.

        Raises:
            OSError: none is left, not even a reserved one.
        """
        now_s, swapped = self._clock.monotonic_s(), swapped_pages()
        pages_per_s = (swapped - self._swapped) / max(now_s - self._looked_s, 0.1)
        self._looked_s, self._swapped = now_s, swapped
        left = memory()
        return HostReport(
            cpu_busy=round(self._processors.busy(), 2),
            cpu_pressure=some_avg10("cpu"),
            memory_pressure=some_avg10("memory"),
            io_pressure=some_avg10("io"),
            available_bytes=left.available,
            swap_used_bytes=left.swap_used,
            swapping=pages_per_s > SWAPPING_PAGES_PER_S,
        )
