"""How many processes and threads a tree has, counted when there can be more of them.

Theory of operation. Counting a tree is expensive once it is large. But it cannot have
grown more than all processes and threads of the host, and asking for their number costs
a few microseconds. Only when that has grown by a step is the tree counted, and no
further than to a step above all that it had: many children of one process are found at
once. While it grows so, it is counted again and again, which its limit bounds; else a
count that took long rests for a while, as others' processes may come and go.
"""

from __future__ import annotations

from jobpool.sandbox.metering.cost_limiter import CostLimiter
from jobpool.sandbox.system.procfs import children_of, process_stat, read, thread_count

COUNT_AGAIN_S = 0.05
"""A tree that grows is counted at least so often."""
_STEPS = 16
"""Of the most that there may be; so far over it a tree may come unseen."""


class TreeSize:
    """The size of one process's tree.

    Args:
        root: pid of the process; not reaped while this is used.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._count = CostLimiter()
        self._at_count = 0
        """How many the host had at the last count, or the lowest since."""
        self._highest = 0
        self._size = 0
        self.grows = False
        """It had a step more at the last count than ever before in its attempt."""

    def begin(self) -> None:
        """Another attempt begins: what it makes is its own."""
        self._highest, self.grows = 0, False
        self._at_count = 0  # it may have many at the first look
        self._count.forget()

    def sample(self, now_s: float, most: int, on_host: int) -> int:
        """Return how many there were at the last count at least; it may be now.

        Args:
            now_s: monotonic time.
            most: more need not be counted.
            on_host: of `host_tasks`, not long ago.
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
        enough: counting ends when there are so many.
    """
    size, found = thread_count(root), children_of(root)
    size += len(found)
    for pid in found:  # grows while it is walked
        if size >= enough:
            break
        stat = process_stat(pid)
        if stat is None or stat.is_dead:  # thousands, where nobody waits for them
            continue
        below = children_of(pid)
        size += max(0, stat.threads - 1) + len(below)
        found += below
    return size


def host_tasks() -> int:
    """Return how many processes and threads the host has; 0: it does not tell."""
    _before, _slash, rest = read("/proc/loadavg").partition(b"/")
    return int(rest.split()[0]) if rest else 0
