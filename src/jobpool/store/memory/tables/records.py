"""What a table is, and tables without indexes."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)


class Table(Protocol[K_contra, V]):
    """A table that the journal can change and restore."""

    def get(self, key: K_contra, /) -> V | None:
        """Return the record of a key, or None."""
        ...

    def put(self, key: K_contra, record: V | None) -> None:
        """Store the record of a key; None: delete it."""
        ...


class Records(dict[K, V], Generic[K, V]):
    """A table without indexes."""

    def put(self, key: K, record: V | None) -> None:
        """See `Table.put`."""
        if record is None:
            self.pop(key, None)
        else:
            self[key] = record
