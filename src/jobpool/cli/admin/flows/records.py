"""Flows and steps as lists and ``--json`` show them. Pure."""

from __future__ import annotations

from typing import Any

from jobpool.core.event_lines import iso_time
from jobpool.store.records.flows import FlowDetail, FlowRow, StepRow
from jobpool.words.figures import ago, seconds
from jobpool.words.flows.critical import critical_path
from jobpool.words.flows.words import age_s, state_word, tally, took_s

COLUMNS = ("ID", "STATE", "NAME", "TENANT", "CREATED", "TOOK", "KEY")


def cells(row: FlowRow, now_ms: int) -> tuple[Any, ...]:
    """Return a flow's line in the list."""
    return (
        row.id,
        row.state,
        row.name,
        row.tenant,
        ago(row.created_at_ms, now_ms),
        seconds(age_s(row, now_ms)),
        row.key,
    )


def flow_object(row: FlowRow) -> dict[str, Any]:
    """Return a flow for ``--json``."""
    return {
        "id": row.id,
        "ref": row.ref,
        "name": row.name,
        "key": row.key,
        "tenant": row.tenant,
        "state": row.state,
        "failure": row.failure,
        "ending": row.ending,
        "generation": row.generation,
        "created_at": iso_time(row.created_at_ms),
        "finished_at": iso_time(row.finished_at_ms),
    }


def detail_object(found: FlowDetail, now_ms: int) -> dict[str, Any]:
    """Return a flow with its steps for ``--json``."""
    return {
        **flow_object(found.row),
        "jobs": dict(tally(found.steps)),
        "critical_path": [one.number for one in critical_path(found.steps)],
        "steps": [step_object(one, now_ms) for one in found.steps],
    }


def step_object(step: StepRow, now_ms: int) -> dict[str, Any]:
    """Return a step for ``--json``."""
    return {
        "number": step.number,
        "name": step.name,
        "state": step.state,
        "failed": step.failed,
        "shown": state_word(step),
        "hook": step.hook,
        "external": step.external,
        "until": iso_time(step.until_ms),
        "after": [{"step": number, "when": when} for number, when in step.after],
        "jobs": dict(step.jobs),
        "first_job": step.first_job,
        "took_s": took_s(step, now_ms),
    }
