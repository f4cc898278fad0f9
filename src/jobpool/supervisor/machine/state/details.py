"""What is reported of failures and of ticks beside the log, to those who want it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from jobpool.core.application.codec import is_encoded
from jobpool.core.application.reports import Report
from jobpool.core.events.event import Event
from jobpool.core.events.figures import (
    AttemptUnsuccessful,
    ReportsLeft,
    TickBegun,
    TickEnded,
)
from jobpool.core.events.jobs import JobEnded
from jobpool.core.jobs.job import UNFINISHED, Evidence, Lease, Settlement
from jobpool.core.jobs.trace import TraceContext
from jobpool.core.rules.schedules.rule import Rule
from jobpool.supervisor.machine.registry import Registry

_TEXTS = ("error", "traceback", "stack")


def tick_begun(at_ms: int, lease: Lease, registry: Registry | None) -> Iterator[Event]:
    """Yield the event of a tick's first attempt; nothing of other jobs."""
    if lease.schedule is not None and lease.attempt == 1:
        yield TickBegun(
            at_ms=at_ms,
            id=lease.id,
            tick=lease.schedule,
            rule=_rule_of(lease.schedule.name, registry),
        )


def tick_ended(
    at_ms: int, lease: Lease, settlement: Settlement, registry: Registry | None
) -> Iterator[Event]:
    """Yield the event of a tick's end; nothing of other jobs, or if it goes on."""
    if lease.schedule is not None and settlement.state not in UNFINISHED:
        yield TickEnded(
            at_ms=at_ms,
            id=lease.id,
            tick=lease.schedule,
            rule=_rule_of(lease.schedule.name, registry),
            state=settlement.state,
            duration_s=settlement.evidence.duration_s,
        )


def reports_left(at_ms: int, reports: Sequence[Report]) -> Iterator[Event]:
    """Yield the event of what an error tracker has left, besides the attempt's end."""
    if others := [one for one in reports if not one.of_error]:
        yield ReportsLeft(at_ms=at_ms, reports=others)


def unsuccessful(
    ended: JobEnded,
    lease: Lease,
    settlement: Settlement,
    trace: TraceContext | None,
    *,
    reports: Sequence[Report] = (),
) -> Event:
    """Return all that is known of an attempt that has not succeeded."""
    return AttemptUnsuccessful(
        at_ms=ended.at_ms,
        ended=ended,
        pool=lease.pool,
        evidence=_readable(lease, settlement.evidence),
        cause=lease.trace,
        trace=trace,
        app_version=settlement.app_version,
        report=next((one for one in reports if one.of_error), None),
    )


def _readable(lease: Lease, evidence: Evidence) -> Evidence:
    left_out: dict[str, None] = {"output": None}
    if lease.codec is not None:
        left_out |= {
            name: None for name in _TEXTS if is_encoded(getattr(evidence, name))
        }
    readable: Evidence = msgspec.structs.replace(evidence, **left_out)
    return readable


def _rule_of(schedule: str, registry: Registry | None) -> Rule | None:
    declared = () if registry is None else registry.schedules
    return next((one.rule for one in declared if one.name == schedule), None)
