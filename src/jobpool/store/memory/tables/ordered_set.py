"""Ordered sets of jobs, which do what indexes do in a database.

Theory of operation. A rank is one integer that holds what a job is ordered by, with its
id in the lowest bits; the smallest rank comes first. An integer is compared in a third
of the time of a tuple, and the garbage collector never visits it.

A `RankSet` is a heap and a set. The set holds the members; a heap entry that is not a
member is a leftover, and is dropped when it reaches the top. Once there are more
leftovers than members the heap is rebuilt, so that a removal costs O(1) on average
wherever the entry is, and no leftover stays for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from jobpool.core.jobs.job import PRIORITY_MAX

_ID_BITS = 64
_TIME_BITS = 48
"""Milliseconds up to the end of year 9999."""
_ID_MASK: int = 2**_ID_BITS - 1
_TIME_MASK: int = 2**_TIME_BITS - 1
_LEFTOVERS_MAX = 64
"""Up to this many leftovers are not worth rebuilding the heap."""


def rank_by_time(at_ms: int, job_id: int) -> int:
    """Return a rank by a moment, then by id."""
    return at_ms << _ID_BITS | job_id


def rank_by_priority(priority: int, run_at_ms: int, job_id: int) -> int:
    """Return a rank by descending priority, then by a moment, then by id."""
    importance = (PRIORITY_MAX - priority) << _TIME_BITS
    return (importance | run_at_ms) << _ID_BITS | job_id


def priority_of(rank: int) -> int:
    """Return the priority of a rank by priority."""
    return PRIORITY_MAX - (rank >> _ID_BITS + _TIME_BITS)


def time_of(rank: int) -> int:
    """Return the moment of a rank by time."""
    return rank >> _ID_BITS


def id_of(rank: int) -> int:
    """Return the id of a rank's job."""
    return rank & _ID_MASK


def oldest_ms(ranks: Iterable[int]) -> int:
    """Return the earliest moment in ranks by priority; it need not be of the first."""
    return min(rank >> _ID_BITS & _TIME_MASK for rank in ranks)


class RankSet:
    """A set of ranks with quick access to the smallest."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._members: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def add(self, rank: int) -> None:
        """Add a rank; adding a member again has no effect."""
        self._members.add(rank)
        heappush(self._heap, rank)

    def discard(self, rank: int) -> None:
        """Remove a rank, if it is a member."""
        members = self._members
        members.discard(rank)
        if len(self._heap) > 2 * len(members) + _LEFTOVERS_MAX:
            self._heap = list(members)
            heapify(self._heap)

    def first(self) -> int | None:
        """Return the smallest rank; None: there is none."""
        heap, members = self._heap, self._members
        while heap:
            if heap[0] in members:
                return heap[0]
            heappop(heap)
        return None

    def lowest(self, limit: int) -> Iterator[int]:
        """Yield the smallest ranks in order, at most *limit*, without changing the set.

        Walks down the heap from its top, best first, so that the cost does not depend
        on the size of the set.
        """
        heap, members = self._heap, self._members
        ahead = [(heap[0], 0)] if heap else []
        last = None
        while ahead and limit > 0:
            rank, place = heappop(ahead)
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heap):
                    heappush(ahead, (heap[child], child))
            if rank in members and rank != last:  # The heap may hold it twice.
                yield rank
                limit -= 1
                last = rank
