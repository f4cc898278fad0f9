"""The memory of what is below a child, at a price that the child cannot drive up.

Theory of operation. To find descendants, the list of children of each thread of each
process is read: a handler with thousands of threads makes that expensive, and it is
done less often (`CostLimiter`). A descendant that is known is measured all the same
whenever its child is; between two walks, each process that is new on the host is asked
for its parent, which costs the same however many threads there are. A number that
another process has left to a descendant since the last walk is met at the next one.
"""

from __future__ import annotations

from jobpool.sandbox.metering.cost_limiter import CostLimiter
from jobpool.sandbox.system.procfs import (
    descendants_of,
    process_numbers,
    process_stat,
    resident_bytes,
)

FIND_EXPENSIVE_S = 0.001
"""Finding descendants counts as expensive sooner than measuring those known."""


class TreeMemory:
    """The descendants of one process, as far as they are known.

    Args:
        root: pid of the process; not reaped while this is used.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.below: list[int] = []
        """Some of them may be gone, and their numbers be those of others."""
        self._settled: set[int] = set()
        """Processes whose parents were asked for since the last walk."""
        self._rss_bytes = 0
        self._walk = CostLimiter(FIND_EXPENSIVE_S)
        self._search = CostLimiter(FIND_EXPENSIVE_S)
        self._sum = CostLimiter()

    def forget_costs(self) -> None:
        """Another attempt begins: measuring it may cost less."""
        for cost in (self._walk, self._search, self._sum):
            cost.forget()

    def sample(self, now_s: float, *, near: bool = False) -> int:
        """Return the resident memory below the root: a trigger, and no proof.

        What processes share counts several times.

        Args:
            now_s: monotonic time.
            near: the tree is near its limit; what is expensive is repeated sooner.
        """
        if self._walk.is_due(now_s, near=near):
            self._walk.begin()
            self.walk()
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
        """Find descendants that have come since the last walk."""
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
        # Whose parent is gone already will have another one when it is asked again.
        self._settled = numbers - {
            pid
            for pid, parent in parents.items()
            if parent in fresh and parent not in parents
        }
