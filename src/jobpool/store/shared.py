"""The stores that several hosts can use at once."""

from __future__ import annotations

from typing import Protocol, TypeGuard

from jobpool.store.base import Store


class SharedStore(Store, Protocol):
    """A store that several hosts can use: its leases expire by its own clock."""

    def hear(self, timeout_s: float) -> bool:
        """Wait until somebody rings, at most so long.

        Returns:
            Whether anybody rang. Where no ring can be heard (behind a pooler) it is
            False after the time: polling remains.
        """
        ...


def is_shared(store: Store) -> TypeGuard[SharedStore]:
    """Say whether other hosts may use the store, so that leases expire by time."""
    return not store.one_host
