"""Schedules and ticks as tables and ``--json`` show them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jobpool.cli.output import ago, clock_time, schedule_pause_words
from jobpool.core.event_lines import iso_time
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.core.rules.schedules.zone import local_time
from jobpool.core.units import show_duration
from jobpool.operations.schedules import Outlook, state_of
from jobpool.store.records.schedules import ScheduleRow, TickRow

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
        clock_time(next_ms) or _why_none(row, seen),
        None if seen.tz == "UTC" else clock_time(next_ms, seen.tz),
        row.missed or None,
        None if last is None else clock_time(last.nominal_ms),
        None if last is None else tick_end(last),
    )


def _why_none(row: ScheduleRow, seen: Outlook) -> str | None:
    """Return why a schedule has no next time, unless its state says it."""
    if row.retired_ms is not None or row.paused_ms is not None:
        return None
    if seen.problem:
        return "unknown here"
    return "after its job" if row.declared.rule.from_end else "none"


def tick_end(tick: TickRow) -> str:
    """Return what has come of a tick: ``job 17 succeeded``."""
    if tick.state is TickState.BUFFERED:
        said = "waits for the end of another"
    elif tick.job_id is None:
        said = str(tick.state)
    else:
        said = f"job {tick.job_id} {tick.job_state or 'is gone'}"
    return f"{said}, backfilled" if tick.backfilled else said


def facts(row: ScheduleRow, seen: Outlook, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield what is said of a schedule: a name and a text."""
    declared, rule = row.declared, row.declared.rule
    yield "kind", f"{declared.kind} in pool {declared.pool}"
    expression = "" if rule.cron is None else f" ({rule.cron})"
    yield "when", f"{seen.when}{expression}"
    if bounds := _bounds(rule):
        yield "bounds", bounds
    yield "policy", _policy(row)
    yield "from", _origin(row)
    if declared.tenant is not None:
        yield "tenant", declared.tenant
    if row.retired_ms is not None:
        yield "retired", f"{ago(row.retired_ms, now_ms)}: it is not declared any more"
    if row.paused_ms is not None:
        yield "paused", schedule_pause_words(row, now_ms)
    if state_of(row, now_ms) == "overdue":
        yield "overdue", f"no supervisor has come since {clock_time(row.next_ms)}"
    if seen.problem:
        yield "problem", seen.problem
    if row.missed:
        yield "missed", f"{row.missed:,} ticks so far got no job"


def _bounds(rule: Rule) -> str:
    parts = (
        f"not before {clock_time(rule.starts_ms)}"
        if rule.starts_ms is not None
        else "",
        f"not after {clock_time(rule.ends_ms)}" if rule.ends_ms is not None else "",
        f"later by less than {show_duration(rule.jitter_ms / 1000)}"
        if rule.jitter_ms
        else "",
    )
    return ", ".join(filter(None, parts))


def _policy(row: ScheduleRow) -> str:
    """Return a schedule's policies as they are written."""
    policy = row.declared.policy
    window = show_duration(policy.catchup_window_s)
    parts = [f"missed={policy.missed} within {window}", f"overlap={policy.overlap}"]
    if row.declared.rule.from_end:
        parts = ["one after another"]
    parts += ["retry_over_tick"] if policy.retry_over_tick else []
    parts += ["pause_on_dead"] if policy.pause_on_dead else []
    return ", ".join(parts)


def _origin(row: ScheduleRow) -> str:
    if row.application is None:
        return "put at run time"
    version = f" {row.app_version}" if row.app_version else ""
    return f"declared by {row.application}{version}"


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
