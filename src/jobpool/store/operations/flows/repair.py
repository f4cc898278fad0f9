"""A flow with a damaged row: nothing more of it begins, and others go on.

Whoever calls this holds the flows' locks, as a fold does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from jobpool.store.statements.flows import EDGE, FLOW, STEP, repair_flow, repair_step
from jobpool.store.statements.integrity import is_valid
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Session

Note = Callable[[str, str], None]
"""Reports a damaged row: what it is, and what became of it."""


def repair_flows(
    session: Session, flows: Collection[int], now_ms: int, note: Note
) -> None:
    """Repair flows that could not be read, and have their steps looked at again.

    One in which nothing is found that can be repaired is left alone, without notes.
    """
    given = as_json(flows)
    damaged = set[int]()
    for owner, *edge_row in session.rows("raw_flow_edges", flows=given):
        edge = dict(zip(EDGE, edge_row, strict=True))
        if not is_valid(edge, EDGE):
            session.run("drop_flow_edge", **edge)
            damaged.add(owner)
    for row in session.rows("raw_flow_steps", flows=given):
        found = dict(zip(STEP, row, strict=True))
        fields, is_damaged = repair_step(found)
        if is_damaged:
            session.run("rewrite_flow_step", **fields)
            damaged.add(found["flow"])
    for row in session.rows("raw_flow_heads", flows=given):
        found = dict(zip(FLOW, row, strict=True))
        flow = found["id"]
        fields, is_damaged = repair_flow(found, now_ms, is_damaged=flow in damaged)
        if is_damaged:
            session.run("rewrite_flow", **fields)
            damaged.add(flow)
    if damaged:
        session.run("note_flows", flows=as_json(damaged))
    for flow in sorted(flows):
        note(f"flow {flow}", "repaired" if flow in damaged else "left alone")
