"""Back-pressure: a pool with many large results unwritten gets no more jobs.

A pool may produce large results faster than the disk takes them. They would pile up in
memory, and no job could be settled or leased until all are written. So a pool whose
unwritten large settlements exceed a limit is sent no job and asks for none; what its
children have goes on, and other pools are not affected. A settlement held up by another
session's open transaction is put off separately, for as long as that takes, and holds
up no pool.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.core.jobs.job import Settlement

_ROW_BYTES = 200
"""About what a job takes beside its arguments."""
SMALL_BYTES = 2**14
"""A larger settlement is large."""
UNWRITTEN_MAX_BYTES = 2**21
"""A pool with this much unwritten is sent no other job."""


def size_bytes(settlement: Settlement) -> int:
    """Return roughly how much it takes in the store, beyond what they all take."""
    size = len(settlement.result or b"") + len(settlement.evidence.output or "")
    return size + sum(len(job.payload) + _ROW_BYTES for job in settlement.added)


def is_large(settlement: Settlement) -> bool:
    """Say whether a settlement is written apart from the small ones."""
    has_more = settlement.result or settlement.evidence.output or settlement.added
    return bool(has_more) and size_bytes(settlement) > SMALL_BYTES


class Unwritten:
    """The large settlements of a pool that the store has not written yet."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        """Bytes by token."""

    @property
    def is_much(self) -> bool:
        """Whether the pool is to be sent no other job."""
        return sum(self._sizes.values()) >= UNWRITTEN_MAX_BYTES

    def add(self, settlement: Settlement) -> None:
        """Note a large settlement that was sent to the store."""
        self._sizes[settlement.token] = size_bytes(settlement)

    def written(self, tokens: Iterable[int]) -> bool:
        """Forget what the store has written; say whether others may begin now."""
        before = self.is_much
        for token in tokens:
            self._sizes.pop(token, None)
        return before and not self.is_much
