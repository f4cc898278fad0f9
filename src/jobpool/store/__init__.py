"""Durable truth: jobs, attempts, leases. Knows databases and no process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobpool.store.base import Store
    from jobpool.store.opening import guest_store, open_store, run_root

__all__ = ["Store", "guest_store", "open_store", "run_root"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: a store in memory needs no database."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jobpool.store import base, opening  # noqa: PLC0415 - see above

    value = globals()[name] = getattr(base if name == "Store" else opening, name)
    return value
