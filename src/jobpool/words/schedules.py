"""What is said of schedules: times, policies, and what a tick came to. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.core.rules.schedules.zone import zone_of
from jobpool.core.units import show_duration
from jobpool.errors import ConfigError
from jobpool.operations.schedules import Outlook, state_of
from jobpool.store.records.schedules import JobTick, ScheduleRow, TickRow
from jobpool.words.figures import ago, clock_time
from jobpool.words.pauses import schedule_pause_words


def why_none(row: ScheduleRow, seen: Outlook) -> str | None:
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


def tick_words(tick: JobTick) -> str:
    """Return which tick a job is of: ``nightly, 2026-11-26 02:00 Europe/Berlin``."""
    tz = zone_here(tick)
    at = clock_time(tick.nominal_ms, tz) or ""
    zone = "" if tz == "UTC" else f" {tz}"
    return f"{tick.schedule}, {at}{zone}{', backfilled' * tick.backfilled}"


def zone_here(tick: JobTick) -> str:
    """Return a schedule's zone; UTC if this host does not know it."""
    try:
        zone_of(tick.tz)
    except ConfigError:
        return "UTC"
    return tick.tz


def facts(row: ScheduleRow, seen: Outlook, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield what is said of a schedule: a name and a text."""
    declared, rule = row.declared, row.declared.rule
    yield "kind", f"{declared.kind} in pool {declared.pool}"
    expression = "" if rule.cron is None else f" ({rule.cron})"
    yield "when", f"{seen.when}{expression}"
    if bounds := _bounds(rule):
        yield "bounds", bounds
    yield "policy", policy_words(row)
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


def policy_words(row: ScheduleRow) -> str:
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
