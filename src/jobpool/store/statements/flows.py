"""What a row of a flow may hold, as `integrity` says it of a job's.

Once a row of a flow is damaged, nobody knows what was to follow what. So nothing more
of it begins: it is canceled, and its hooks for that end run. A flow that has ended
stays as it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobpool.core.jobs.flow import (
    UNFINISHED_FLOWS,
    Ending,
    Failure,
    FlowState,
    Hook,
    StepState,
    When,
)
from jobpool.store.statements.integrity import Flag, valid_fields

FLOW: Mapping[str, Any] = {
    "id": int,
    "name": str,
    **dict.fromkeys(("key", "tenant"), str | None),
    "state": FlowState,
    "failure": Failure,
    "ending": Ending | None,
    "generation": int,
    "builder": str | None,
    "created_at_ms": int,
    **dict.fromkeys(("touched_at_ms", "finished_at_ms"), int | None),
    "is_erased": Flag,
}
STEP: Mapping[str, Any] = {
    **dict.fromkeys(("id", "flow", "number"), int),
    "name": str,
    "state": StepState,
    "hook": Hook | None,
    **dict.fromkeys(("timeout_ms", "until_ms"), int | None),
    **dict.fromkeys(("failed", "is_external"), Flag),
}
EDGE: Mapping[str, Any] = {
    **dict.fromkeys(("flow", "from_step", "to_step"), int),
    "when_ended": When,
}
_FLOW_REPLACEMENTS: Mapping[str, Any] = {
    "name": "",
    "state": FlowState.OPEN,
    "failure": Failure.FAIL,
    "generation": 1,
    **dict.fromkeys(("created_at_ms", "touched_at_ms", "is_erased"), 0),
}
_STEP_REPLACEMENTS: Mapping[str, Any] = {
    "name": "",
    "state": StepState.SKIPPING,
    **dict.fromkeys(("failed", "is_external"), 0),
}
"""What replaces an invalid value, where that is not NULL."""


def repair_flow(
    found: Mapping[str, Any], now_ms: int, *, is_damaged: bool
) -> tuple[dict[str, Any], bool]:
    """Return a flow's row, repaired, and whether it or anything of it was damaged.

    Args:
        found: the row; its id is readable.
        now_ms: the end of one that has no readable end.
        is_damaged: a step of it, or an edge, is damaged.
    """
    fields, wrong = valid_fields(found, FLOW, _FLOW_REPLACEMENTS)
    is_over = fields["state"] not in UNFINISHED_FLOWS
    if is_over is (fields["finished_at_ms"] is None):
        fields["finished_at_ms"] = now_ms if is_over else None
        wrong.append("finished_at_ms")
    is_damaged = is_damaged or bool(wrong)
    if is_damaged and not is_over:
        fields["ending"] = Ending.CANCEL
        if fields["state"] is not FlowState.BUILDING:
            fields["state"] = FlowState.OPEN
    return fields, is_damaged


def repair_step(found: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a step's row, repaired, and whether it was damaged.

    Its id and its flow must be readable: without them it is no step.
    """
    replacements = {**_STEP_REPLACEMENTS, "number": -found["id"]}
    fields, wrong = valid_fields(found, STEP, replacements)
    return fields, bool(wrong)


def shown_flow(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of a flow as they can be shown, also those of a damaged row."""
    return valid_fields(found, FLOW, _FLOW_REPLACEMENTS)[0]


def shown_step(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of a step as they can be shown, also those of a damaged row."""
    replacements = {**_STEP_REPLACEMENTS, "number": -found["id"]}
    return valid_fields(found, STEP, replacements)[0]
