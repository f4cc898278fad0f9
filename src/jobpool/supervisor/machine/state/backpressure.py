"""Large ends: their results keep the disk, and all who need the store, waiting.

A pool may make more of them than the disk takes. They would pile up in our memory, and
then nobody's end could be written, and no job be leased, before all of them are. So a
pool is sent no other job while much of its large ends is with the store, and asks for
none; what its children have goes on, and the other pools do not notice. An end that
somebody's open transaction holds is put off apart from the others, for as long as that
takes, and keeps no pool waiting.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.core.jobs.job import Settlement

SMALL_BYTES = 2**14
"""A settlement with more than that is large."""
UNWRITTEN_MAX_BYTES = 2**21
"""A pool that has so much unwritten is sent no other job: the store has enough to do
until their ends are known."""


def size_bytes(settlement: Settlement) -> int:
    """Return about how much it takes in the store, beyond what they all take."""
    return len(settlement.result or b"") + len(settlement.evidence.output or "")


def is_large(settlement: Settlement) -> bool:
    """Say whether a settlement is to be written apart from the small ones."""
    has_text = settlement.result or settlement.evidence.output
    return bool(has_text) and size_bytes(settlement) > SMALL_BYTES


class Unwritten:
    """The large ends of a pool that the store is busy with, or will be."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        """By token, in bytes."""

    @property
    def is_much(self) -> bool:
        """Whether nothing else is to be sent."""
        return sum(self._sizes.values()) >= UNWRITTEN_MAX_BYTES

    def add(self, settlement: Settlement) -> None:
        """Note a large end that is given to the store."""
        self._sizes[settlement.token] = size_bytes(settlement)

    def written(self, tokens: Iterable[int]) -> bool:
        """Forget what the store has answered for; say whether others may begin now."""
        before = self.is_much
        for token in tokens:
            self._sizes.pop(token, None)
        return before and not self.is_much
