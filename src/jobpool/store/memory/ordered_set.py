"""Ordered sets of jobs: the part that indexes play in a database.

Theory of operation. A rank is one whole number that holds what a job is ordered by,
and its id in the lowest bits; the smallest rank comes first. One number is compared
in a third of the time of a tuple, and the garbage collector never looks at it.

A `RankSet` is a heap beside a set. The set says what is a member; a heap's entry that
is no member is left over, and dropped when it comes to the top. Once the leftovers
are more than the members the heap is made anew, so that a removal costs O(1) on the
average wherever the entry stands, and no leftover stays for ever.
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
"""So many leftovers are never worth making the heap anew."""


def rank_by_time(at_ms: int, job_id: int) -> int:
    """Return a rank by a moment, then by id."""
    return at_ms << _ID_BITS | job_id


def rank_by_priority(priority: int, run_at_ms: int, job_id: int) -> int:
    """Return a rank by descending priority, then by a moment, then by id."""
    importance = (PRIORITY_MAX - priority) << _TIME_BITS
    return (importance | run_at_ms) << _ID_BITS | job_id


def time_of(rank: int) -> int:
    """Return the moment of a rank by time."""
    return rank >> _ID_BITS


def id_of(rank: int) -> int:
    """Return the id of the job that a rank is of."""
    return rank & _ID_MASK


def oldest_ms(ranks: Iterable[int]) -> int:
    """Return the earliest moment of ranks by priority, which others may outrank."""
    return min(rank >> _ID_BITS & _TIME_MASK for rank in ranks)


class RankSet:
    """A set of ranks whose smallest one is at hand."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._members: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def add(self, rank: int) -> None:
        """Add a rank; one that is a member already stays one."""
        self._members.add(rank)
        heappush(self._heap, rank)

    def discard(self, rank: int) -> None:
        """Take a rank out, if it is a member."""
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
        """Yield the smallest ranks in order, at most *limit*, without a change.

        Walks down the heap from its top, best first, so that it does not cost more
        for what stands behind them.
        """
        heap, members = self._heap, self._members
        ahead = [(heap[0], 0)] if heap else []
        last = None
        while ahead and limit > 0:
            rank, place = heappop(ahead)
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heap):
                    heappush(ahead, (heap[child], child))
            if rank in members and rank != last:  # It may stand there twice.
                yield rank
                limit -= 1
                last = rank
