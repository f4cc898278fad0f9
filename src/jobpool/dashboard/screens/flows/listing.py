"""The list of flows, newest first."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.flow import FlowState
from jobpool.dashboard.asked import Asked
from jobpool.operations.flows import Approve
from jobpool.store.protocol import Store
from jobpool.store.records.flows import AskRow, FlowFilter, FlowRow
from jobpool.words.flows.words import age_s

PAGE = 50
_ASKS_MAX = 50
STATES = tuple(one.value for one in FlowState if one is not FlowState.BUILDING)
"""Nobody is shown a flow that is still being built."""
FIELDS = ("state", "name", "key", "tenant")
"""What the list can be narrowed down by, as in its URL."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in the list."""

    row: FlowRow
    took_s: float


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    chosen = {name: asked.query[name] for name in FIELDS if asked.query.get(name)}
    before = asked.query.get("before")

    def lines(store: Store) -> list[Line]:
        return lines_of(store, chosen, before, SystemClock().utc_ms())

    listed, counts, asks = await asked.reading.read(lines, _counts, _asks)
    return asked.page(
        "flows.html",
        listed=listed,
        counts=counts,
        asks=asks,
        asks_max=_ASKS_MAX,
        approve=Approve,
        chosen=chosen,
        states=STATES,
        is_first=before is None,
        page=PAGE,
    )


def lines_of(
    store: Store, chosen: Mapping[str, str], before: str | None, now_ms: int
) -> list[Line]:
    """Read a page of flows, and one more: so it is known whether there are others.

    Args:
        store: where they are.
        chosen: values of `FIELDS`; a state that no flow can have selects none.
        before: the ref of the last flow of the page before; None: the first page.
        now_ms: the store's clock, or one that is near it.
    """
    state = chosen.get("state")
    if state is not None and state not in STATES:
        return []
    which = FlowFilter(
        states=None if state is None else (FlowState(state),),
        name=chosen.get("name"),
        key=chosen.get("key"),
        tenant=chosen.get("tenant"),
    )
    before_id = None if before is None else (store.flow_id_of(before) or 0)
    return [
        Line(row=row, took_s=age_s(row, now_ms))
        for row in store.flows(which, PAGE + 1, before_id)
    ]


def _counts(store: Store) -> dict[str, int]:
    return store.open_flows()


def _asks(store: Store) -> list[AskRow]:
    return store.asks(_ASKS_MAX)
