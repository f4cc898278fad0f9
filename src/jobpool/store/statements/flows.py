"""What a row of a flow may hold, as `integrity` says it of a job's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobpool.core.jobs.flow import (
    Ending,
    Failure,
    FlowState,
    Hook,
    StepState,
    When,
)
from jobpool.store.statements.integrity import Flag

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
