"""Rows of a move's source, repaired so that PostgreSQL can hold them.

A damaged row must not keep the others from moving. So it is repaired as everywhere
(`statements.integrity`): an unfinished job moves as dead, with its reason. The same row
always gives the same result, because it is read twice: to copy it, and to compare it.
Text that is not UTF-8, or holds a NUL, cannot be stored in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Literal

from jobpool.store.statements import flows, integrity
from jobpool.store.statements.session import Row

JOB = (
    *("id", "kind", "pool", "state", "priority", "key", "unique_text", "tenant"),
    *("payload", "max_attempts", "timeout_s", "memory_bytes", "attempt"),
    *("reset_attempt", "failures", "crashes", "interruptions", "recoveries"),
    *("created_at_ms", "run_at_ms", "expires_at_ms", "finished_at_ms"),
    *("completed_token", "slot", "started_at_ms", "last_heartbeat_at_ms", "outcome"),
    *("reason", "error_class", "error", "duration_s", "cpu_s", "peak_rss_bytes"),
    *("progress", "checkpoint", "snoozes", "snoozed_since_ms", "codec", "result"),
)
"""The columns of move_jobs."""
JOB_LATER: Mapping[str, Any] = {
    "tick": int | None,
    "trace": str | None,
    **dict.fromkeys(("replays", "replaced_by"), int | None),
    "quota_values": str | None,
    "throttled": str | None,
    "step": int | None,
    "generation": integrity.Count | None,
    "added_by": int | None,
    "solo": Literal[0, 1] | None,
}
"""Columns that few jobs use: written to those only, after they were published."""
RUN_LATER: Mapping[str, Any] = {
    "format": int | None,
    **dict.fromkeys(("application", "app_version"), str | None),
    "app_since_ms": int | None,
}
_CHECKER = integrity.RowChecker(JOB)
_NO_TEXT = object()
"""Replaces text that PostgreSQL cannot hold; it is valid in no column."""


class RowFitter:
    """Repairs rows, and remembers which were damaged.

    Args:
        moment_ms: the end of whatever has no readable end.

    Attributes:
        damaged: what was repaired, by job; each reason names the columns.
        damaged_flows: those of which a row was repaired or left out.
    """

    def __init__(self, moment_ms: int) -> None:
        self._moment_ms = moment_ms
        self.damaged: dict[int, str] = {}
        self.damaged_flows: set[int] = set()

    def jobs(self, rows: list[Row]) -> list[Row]:
        """Return rows of move_jobs, repaired."""
        rows = [row if all(map(_fits, row)) else _without_texts(row) for row in rows]
        for place in _CHECKER.damaged(rows):
            found = dict(zip(JOB, rows[place], strict=True))
            repaired = integrity.repair_job(found, self._moment_ms)
            self.damaged[found["id"]] = integrity.why(repaired.wrong)
            rows[place] = _plain(repaired.fields)
        return rows

    def attempts(self, rows: list[Row]) -> list[Row]:
        """Return rows of move_attempts, repaired."""
        columns = tuple(integrity.ATTEMPT)
        fit = []
        for row in rows:
            found = dict(zip(columns, _without_texts(row), strict=True))
            fields, wrong = integrity.repair_attempt(found)
            if wrong:
                self.damaged.setdefault(
                    fields["job_id"], f"its history: {integrity.why(wrong)}"
                )
            fit.append(_plain(fields) if wrong else row)
        return fit

    def runs(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows of move_runs, repaired; all of them as ended."""
        fit = []
        for row, later in split(rows, RUN_LATER):
            found = dict(zip(integrity.RUN, row, strict=False))
            if integrity.is_valid({"id": found["id"]}, integrity.RUN):
                found |= {n: None for n, v in found.items() if not _fits(v)}
                fields, _ = integrity.repair_run(found, self._moment_ms)
                fields["ended_at_ms"] = fields["ended_at_ms"] or self._moment_ms
                fit.append(_plain(fields) + later)
        return fit

    def flows(
        self, heads: list[Row], steps: list[Row], edges: list[Row]
    ) -> tuple[list[Row], list[Row], list[Row]]:
        """Return flows, steps and edges, repaired; without edges that say nothing."""
        fit_steps = []
        for row in steps:
            found = dict(zip(flows.STEP, _without_texts(row), strict=True))
            if type(found["flow"]) is int:
                fields, is_damaged = flows.repair_step(found)
                fit_steps.append(_plain(fields))
                self.damaged_flows.update([found["flow"]] if is_damaged else [])
        flow_of = {step: flow for step, flow, *_ in fit_steps}
        fit_edges = readable(flows.EDGE, edges)
        for flow, from_, to, _ in {*edges} - {*fit_edges}:
            named = {flow, flow_of.get(from_), flow_of.get(to)}
            self.damaged_flows.update(one for one in named if type(one) is int)
        fit = []
        for row in heads:
            found = dict(zip(flows.FLOW, _without_texts(row), strict=True))
            fields, is_damaged = flows.repair_flow(
                found,
                self._moment_ms,
                is_damaged=found["id"] in self.damaged_flows,
            )
            fit.append(_plain(fields))
            self.damaged_flows.update([found["id"]] if is_damaged else [])
        return fit, fit_steps, fit_edges


def split(rows: Iterable[Row], later: Mapping[str, Any]) -> Iterator[tuple[Row, Row]]:
    """Yield each row without its last columns, and these; what is damaged as NULL."""
    for row in rows:
        place = len(row) - len(later)
        fit = (
            value if _fits(value) and integrity.is_valid({name: value}, later) else None
            for name, value in zip(later, row[place:], strict=True)
        )
        yield row[:place], tuple(fit)


def readable(columns: Mapping[str, Any], rows: Iterable[Row]) -> list[Row]:
    """Return the rows of a small table that can be read."""
    return [
        row
        for row in rows
        if all(map(_fits, row))
        and integrity.is_valid(dict(zip(columns, row, strict=True)), columns)
    ]


def _without_texts(row: Row) -> Row:
    """Return a row without text that PostgreSQL cannot hold."""
    return tuple(value if _fits(value) else _NO_TEXT for value in row)


def _fits(value: object) -> bool:
    """Say whether PostgreSQL can hold a value, if it is text."""
    if type(value) is not str:
        return True
    if value.isascii():
        return "\0" not in value
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _plain(fields: Mapping[str, Any]) -> Row:
    """Return a row with plain values, as a database accepts them."""
    return tuple(
        value.value if isinstance(value, StrEnum) else value
        for value in fields.values()
    )
