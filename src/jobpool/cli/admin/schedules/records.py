"""Schedules and ticks as tables and ``--json`` show them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from jobpool.core.event_lines import iso_time
from jobpool.core.rules.schedules.zone import local_time
from jobpool.operations.schedules import Outlook, state_of
from jobpool.store.records.schedules import ScheduleRow, TickRow
from jobpool.words.figures import clock_time
from jobpool.words.schedules import tick_end, why_none

COLUMNS = ("NAME", "STATE", "KIND", "WHEN", "NEXT", "LOCAL", "MISSED", "LAST", "END")


def cells(row: ScheduleRow, seen: Outlook, now_ms: int) -> tuple[Any, ...]:
    """Return a schedule's line in the list."""
    next_ms = seen.upcoming_ms[0] if seen.upcoming_ms else None
    last = row.last_tick
    return (
        row.declared.name,
        state_of(row, now_ms),
        row.declared.kind,
        seen.when,
        clock_time(next_ms) or why_none(row, seen),
        None if seen.tz == "UTC" else clock_time(next_ms, seen.tz),
        row.missed or None,
        None if last is None else clock_time(last.nominal_ms),
        None if last is None else tick_end(last),
    )


def times(seen: Outlook) -> list[dict[str, str]]:
    """Return the next times for ``--json``."""
    return [
        {
            "at": iso_time(at_ms) or "",
            "local": local_time(at_ms, seen.tz).isoformat(),
        }
        for at_ms in seen.upcoming_ms
    ]


def schedule_object(row: ScheduleRow, seen: Outlook) -> dict[str, Any]:
    """Return a schedule for ``--json``."""
    declared, rule = row.declared, row.declared.rule
    every_s = None if rule.every_ms is None else rule.every_ms / 1000
    return {
        "name": declared.name,
        "kind": declared.kind,
        "pool": declared.pool,
        "tenant": declared.tenant,
        "priority": declared.priority,
        "application": row.application,
        "app_version": row.app_version,
        "when": seen.when,
        "cron": rule.cron,
        "every_s": every_s,
        "from_end": rule.from_end,
        "tz": rule.tz,
        "jitter_s": rule.jitter_ms / 1000,
        "starts_at": iso_time(rule.starts_ms),
        "ends_at": iso_time(rule.ends_ms),
        **{
            name: getattr(declared.policy, name)
            for name in declared.policy.__struct_fields__
        },
        "next": times(seen),
        "problem": seen.problem or None,
        "last_tick": None if row.last_tick is None else tick_object(row.last_tick),
        "missed_ticks": row.missed,
        "paused": row.paused_ms is not None,
        "paused_at": iso_time(row.paused_ms),
        "paused_until": iso_time(row.paused_until_ms),
        "paused_by": row.paused_by,
        "note": row.note,
        "retired_at": iso_time(row.retired_ms),
    }


def tick_object(tick: TickRow) -> dict[str, Any]:
    """Return a tick for ``--json``."""
    of_rows = msgspec.structs.asdict(tick)
    return {
        "at": iso_time(tick.nominal_ms),
        "stored_at": iso_time(of_rows.pop("stored_ms")),
        "ended_at": iso_time(of_rows.pop("ended_ms")),
        "state": tick.state,
        "job": tick.job_id,
        "job_state": tick.job_state,
        "backfilled": tick.backfilled,
    }
