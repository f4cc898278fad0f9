"""How multiprocessing's own objects are pickled for a call."""

from __future__ import annotations

import copyreg
import sys
from typing import Any

from jobpool.executor.pickling.borrowing import borrowed_lock, borrowed_queue
from jobpool.executor.pickling.lending import FAMILIES, Loan

_MODULES = {
    f"{family}.{module}": module
    for family in FAMILIES
    for module in ("connection", "queues", "synchronize")
}
CONNECTIONS = frozenset(name for name in _MODULES if name.endswith(".connection"))
"""Modules whose objects pickle would reduce to a bare descriptor number."""


def reduction_of(obj: Any, loan: Loan | None) -> tuple[Any, ...] | None:
    """Return an object's reduction; None: pickle's own.

    Raises:
        TypeError: it can only be sent to a call, not returned from one.
    """
    module = _MODULES.get(type(obj).__module__)
    if module is None:
        return None
    if loan is None:
        if module == "connection":
            raise TypeError(
                f"a {type(obj).__name__} can be sent to a call, but not come back from "
                "one: its descriptor belongs to the call's process"
            )
        return None
    if module == "synchronize":
        lock = getattr(obj, "_semlock", None)
        if lock is not None and lock.name is None:
            # Of the fork context: other processes cannot find it by name.
            where = loan.lend_semaphore(lock)
            return borrowed_lock, (type(obj), *where, lock.kind, lock.maxvalue)
    elif module == "queues" and hasattr(obj, "_buffer"):
        return borrowed_queue, (type(obj), obj.__getstate__())
    return None


def dispatch_table() -> dict[type, Any]:
    """Return the reducers that multiprocessing uses for a process being started."""
    table = dict(copyreg.dispatch_table)
    for family in FAMILIES:
        reduction = sys.modules.get(f"{family}.reduction")
        if reduction is not None:
            table |= reduction.ForkingPickler._extra_reducers  # noqa: SLF001 - no public way
    return table
