"""Which flow a command means."""

from __future__ import annotations

from jobpool.cli.jobs.selection import flow_id_of
from jobpool.errors import FlowNotFound
from jobpool.store.protocol import Store
from jobpool.store.records.flows import FlowDetail


def meant(store: Store, named: int | str) -> FlowDetail:
    """Return the flow that is named by its id or its ref.

    Raises:
        FlowNotFound: there is none.
    """
    number = flow_id_of(store, named)
    found = store.flow(number)
    if found is None:
        raise FlowNotFound(
            f"there is no flow {number} in {store.url}; it may have been pruned, or is "
            "in another store (--store)"
        )
    return found
