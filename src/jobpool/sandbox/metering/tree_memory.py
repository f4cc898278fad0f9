"""The memory of a child's descendants, at a cost that the child cannot drive up.

Theory of operation. A walk that finds descendants reads the list of children of each
thread of each process: a handler with thousands of threads makes that expensive, and
then it is done less often (`CostLimiter`). Known descendants are measured all the same
whenever their child is. Between two walks the parent of each process that is new on
the host is read, which costs the same however many threads there are. A descendant that
has got the recycled pid of a known process is found by the next walk.
"""

from __future__ import annotations

from jobpool.sandbox.metering.sampling import CostLimiter
from jobpool.sandbox.system.procfs import (
    descendants_of,
    process_numbers,
    process_stat,
    resident_bytes,
)

FIND_EXPENSIVE_S = 0.001
"""Finding descendants counts as expensive sooner than measuring known ones."""


class TreeMemory:
    """The descendants of one process, as far as they are known.

    Args:
        root: pid of the process; not reaped while this is used.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.below: list[int] = []
        """Some of them may be gone, and their pids recycled."""
        self.is_alone = False
        """Whether the last sample looked for descendants, and found none."""
        self._settled: set[int] = set()
        """Processes whose parents were read since the last walk."""
        self._rss_bytes = 0
        self._walk = CostLimiter(FIND_EXPENSIVE_S)
        self._search = CostLimiter(FIND_EXPENSIVE_S)
        self._sum = CostLimiter()

    def forget_costs(self) -> None:
        """Another attempt begins: measuring it may cost less."""
        for cost in (self._walk, self._search, self._sum):
            cost.forget()

    def sample(self, now_s: float, *, near: bool = False) -> int:
        """Return the resident memory below the root: a trigger, not proof.

        What processes share counts several times.

        Args:
            now_s: monotonic time.
            near: the tree is near its limit: repeat expensive measurements sooner.
        """
        self.is_alone = False
        if self._walk.is_due(now_s, near=near):
            self._walk.begin()
            self.is_alone = not self.walk()
            self._walk.end(now_s)
        elif self._search.is_due(now_s, near=near):
            self._search.begin()
            self._find_new()
            self._search.end(now_s)
        if self._sum.is_due(now_s, near=near):
            self._sum.begin()
            self._rss_bytes = self.known_rss_bytes()
            self._sum.end(now_s)
        return self._rss_bytes

    def walk(self) -> list[int]:
        """Find all descendants, and return them."""
        self._settled.clear()
        self.below = descendants_of(self.root)
        return self.below

    def known_rss_bytes(self) -> int:
        """Return the resident memory of the descendants that are known."""
        return sum(map(resident_bytes, self.below))

    def _find_new(self) -> None:
        """Find descendants that are new since the last walk."""
        numbers = process_numbers()
        fresh = numbers - self._settled
        stats = ((pid, process_stat(pid)) for pid in fresh)
        parents = {pid: stat.parent for pid, stat in stats if stat}
        self.below = [pid for pid in self.below if pid in numbers]
        inside = {self.root, *self.below}
        while found := {
            pid for pid in parents.keys() - inside if parents[pid] in inside
        }:
            inside |= found
            self.below += found
        # One whose parent is gone already will have another parent next time.
        self._settled = numbers - {
            pid
            for pid, parent in parents.items()
            if parent in fresh and parent not in parents
        }
