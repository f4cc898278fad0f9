"""One look at the queue: all that the rules judge by, read from the store."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jobpool.core.config.settings import AlertSettings
from jobpool.core.rules.run_report import ReportRow
from jobpool.monitoring.alerts.notes import Notes
from jobpool.store.protocol import Store
from jobpool.store.records.alerts import Endings
from jobpool.store.records.reading import ScalingRow, WaitingRow
from jobpool.store.records.runs import Run
from jobpool.store.records.schedules import ScheduleRow

LOST_WITHIN_S = 900.0
"""Dead and quarantined jobs are news for so long."""
SILENT_S = 60.0
"""A supervisor that was not heard of for longer, nor within its lease, counts for
nothing."""
_SINCE_MAX_S = 300.0
"""Successes are counted over no more: nobody may have looked for long."""


class StuckFlows(msgspec.Struct, frozen=True):
    """Open flows of one name that do not move."""

    name: str
    flows: int
    ref: str
    """Of the oldest."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen."""

    now_ms: int
    """The store's clock."""
    waiting: tuple[WaitingRow, ...] = ()
    scaling: tuple[ScalingRow, ...] = ()
    """With what is due and nobody has made runnable; empty if all pools are served."""
    runs: tuple[Run, ...] = ()
    """Those that are open."""
    reports: tuple[ReportRow, ...] = ()
    schedules: tuple[ScheduleRow, ...] = ()
    endings: Endings = Endings({}, {}, 0)
    stuck: tuple[StuckFlows, ...] = ()


def look(store: Store, now_ms: int, notes: Notes, settings: AlertSettings) -> Look:
    """Look at the queue.

    Args:
        store: whose.
        now_ms: its clock.
        notes: of the last look.
        settings: rules that are off cost nothing.

    Raises:
        StoreError: it cannot be read.
    """
    since_ms = max(notes.at_ms + 1, now_ms - round(_SINCE_MAX_S * 1000))
    before_s = settings.stuck_flows_s
    runs = store.open_runs()
    unserved = {record.pool for record in store.kinds()} - served(runs, now_ms)
    # It counts all due jobs, as `waiting` does: not while every pool is served.
    has_scaling = settings.no_supervisor_s is not None and unserved
    return Look(
        now_ms=now_ms,
        waiting=tuple(store.waiting()),
        scaling=tuple(store.scaling()) if has_scaling else (),
        runs=tuple(runs),
        reports=tuple(store.run_reports()) if settings.depth else (),
        schedules=tuple(store.schedules()) if settings.missed_ticks_s else (),
        endings=store.endings(
            since_ms,
            lost_since_ms=now_ms - round(LOST_WITHIN_S * 1000),
            after_attempt=notes.last_attempt,
        ),
        stuck=_stuck(store, now_ms - round(before_s * 1000)) if before_s else (),
    )


def served(runs: Iterable[Run], now_ms: int) -> set[str]:
    """Return the pools of supervisors that were heard of lately."""
    return {
        pool
        for run in runs
        if now_ms <= max(run.heartbeat_at_ms + SILENT_S * 1000, run.lease_until_ms)
        for pool in run.pools
    }


def _stuck(store: Store, before_ms: int) -> tuple[StuckFlows, ...]:
    found: dict[str, list[int]] = {}
    for flow, name in store.stuck_flows(before_ms):
        found.setdefault(name, []).append(flow)
    return tuple(
        StuckFlows(name, len(ids), detail.row.ref)
        for name, ids in found.items()
        if (detail := store.flow(min(ids))) is not None
    )
