"""How many processes and threads a tree has, counted only when it may have grown.

Theory of operation. Counting a tree is expensive once it is large. But it cannot have
grown by more than the host's number of processes and threads, which costs a few
microseconds to read. Only when that number has grown by a step is the tree counted, and
only to a step above its highest count: many children of one process are found at once.
While the tree grows like this it is counted again and again, which its limit bounds.
Otherwise a count that took long pauses for a while, as other trees may be growing.
"""

from __future__ import annotations

from jobpool.sandbox.metering.sampling import CostLimiter
from jobpool.sandbox.system.procfs import children_of, process_stat, read, thread_count

COUNT_AGAIN_S = 0.05
"""A growing tree is counted at least this often."""
_STEPS = 16
"""A step is the limit divided by this: a tree may exceed its limit by a step unseen."""


class TreeSize:
    """The size of one process's tree.

    Args:
        root: pid of the process; not reaped while this is used.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._count = CostLimiter()
        self._at_count = 0
        """The host's number at the last count, or the lowest since."""
        self._highest = 0
        self._size = 0
        self.grows = False
        """Whether the last count was a step above the highest before in its attempt."""

    def begin(self) -> None:
        """Start over: another attempt begins."""
        self._highest, self.grows = 0, False
        self._at_count = 0  # it may have many in the first sample
        self._count.forget()

    def sample(self, now_s: float, most: int, on_host: int) -> int:
        """Return the last count, at least; the tree is counted now if need be.

        Args:
            now_s: monotonic time.
            most: counting may end above this.
            on_host: a recent result of `host_tasks`.
        """
        step = max(1, most // _STEPS)
        self._at_count = min(self._at_count, on_host)
        may_have_grown = on_host >= self._at_count + step
        if self.grows or (may_have_grown and self._count.is_due(now_s, near=True)):
            enough = min(self._highest + step, most + 1)
            self._count.begin()
            self._size = tree_size(self._root, enough)
            self._count.end(now_s)
            self._at_count = on_host
            self.grows = self._size >= enough
            self._highest = max(self._highest, self._size)
        return self._size


def tree_size(root: int, enough: int) -> int:
    """Count the processes and threads of a tree, zombies included.

    Args:
        root: the first process.
        enough: counting ends at this number.
    """
    size, found = thread_count(root), children_of(root)
    size += len(found)
    for pid in found:  # the list grows during the walk
        if size >= enough:
            break
        stat = process_stat(pid)
        if stat is None or stat.is_dead:  # there may be thousands of zombies
            continue
        below = children_of(pid)
        size += max(0, stat.threads - 1) + len(below)
        found += below
    return size


def host_tasks() -> int:
    """Return how many processes and threads the host has; 0: unknown."""
    _before, _slash, rest = read("/proc/loadavg").partition(b"/")
    return int(rest.split()[0]) if rest else 0
