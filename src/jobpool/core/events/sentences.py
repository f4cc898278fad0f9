"""What each event says to people, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.events.alerts import (
    AlertNotSent,
    IncidentEnded,
    IncidentOpened,
    NotWatched,
    alert_parts,
)
from jobpool.core.events.event import Event
from jobpool.core.events.flow import (
    DownstreamClosed,
    DownstreamOpened,
    KindResumed,
    KindSlowed,
    QuotaDiffers,
    QuotasHeldBack,
    RateTooTight,
)
from jobpool.core.events.jobs import (
    JobCleared,
    JobCompleted,
    JobDead,
    JobEnded,
    JobOutput,
    JobQuarantined,
    JobSnoozed,
    JobSucceeded,
    JobSuspected,
    JobUnfit,
    MemorySoftPassed,
)
from jobpool.core.events.pools import (
    ChildEnded,
    ChildStarted,
    HostMemoryShort,
    ImportNotShared,
    MemoryAwaited,
    PoolReloaded,
    PoolResized,
    PoolsLeft,
    PoolUnused,
    SlotsBeyondMemory,
    ZygoteFailed,
)
from jobpool.core.events.schedules import (
    SchedulePaused,
    ScheduleRefused,
    SchedulesChanged,
    TicksMissed,
)
from jobpool.core.events.supervisor import (
    Alarm,
    Beside,
    IsolationReduced,
    LeaseFenced,
    LeaseRegained,
    MetricsRefused,
    RunReclaimed,
    StaleSettlement,
    StoreBack,
    StoreConcern,
    StoreTrouble,
    StoreWentBack,
    SupervisorDraining,
    SupervisorOutdated,
    SupervisorReady,
    SupervisorStopped,
    UnknownKind,
    UnknownKinds,
    beside_parts,
)
from jobpool.core.jobs.budget import RESET, attempt_words, spent_words
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.policy import SNOOZES_MAX
from jobpool.core.rules.quotas.throttle import THROTTLES_MAX
from jobpool.core.units import show_duration, show_size

_ITEMS_MAX = 20
"""Kinds or pools named in one line."""


def parts(event: Event) -> Iterator[str]:  # noqa: C901 - a case each
    """Yield the columns of an event's line; empty ones are left out."""
    match event:
        case JobSnoozed() | JobUnfit():
            yield from _waiting_parts(event)
        case JobSucceeded() | JobEnded():
            yield from _attempt_parts(event)
        case JobCompleted():
            yield f"job {event.id} succeeded"
            yield "completed by its own transaction"
            if event.outcome is not None:
                yield f"the attempt then {event.outcome}; nothing is charged"
        case MemorySoftPassed():
            yield f"job {event.id} over its soft memory limit"
            yield event.slot
            yield event.kind
            yield (
                f"{show_size(event.rss_bytes)} of {show_size(event.soft_bytes)}; it "
                f"is killed at {show_size(event.memory_bytes)}"
            )
            yield "SoftMemory raised in the handler" if event.raised else ""
        case JobDead():
            yield f"job {event.id} dead"
            yield event.kind
            yield event.reason or ""
            yield f"see: jobpool show {event.id}"
        case JobQuarantined():
            yield f"job {event.id} quarantined"
            yield event.kind
            yield event.reason or ""
            yield f"see: jobpool show {event.id}"
        case JobOutput():
            yield f"job {event.id} |"
            yield event.line
        case ChildStarted():
            yield f"child {event.slot} started"
            yield f"pid {event.pid}"
        case ChildEnded():
            yield f"child {event.slot} ended"
            yield f"pid {event.pid}"
            yield f"{event.jobs} jobs"
            yield event.reason
        case _:
            yield from _supervisor_parts(event)


def _waiting_parts(event: JobSnoozed | JobUnfit) -> Iterator[str]:
    if isinstance(event, JobUnfit):
        yield f"job {event.id} does not fit its handler here"
        yield event.slot
        yield event.kind
        yield event.reason or ""
        within = show_duration(event.unknown_for_s)
        yield f"handed back; dead unless another supervisor can run it within {within}"
        return
    yield f"job {event.id} snoozed"
    yield event.slot
    yield attempt_words(event.attempt)
    yield event.kind
    again = f"again in {show_duration(event.delay_s)}"
    yield ", ".join(filter(None, (event.reason, again)))
    if event.throttles:
        yield f"throttled {event.throttles} of {THROTTLES_MAX} times in a row"
    else:
        yield f"snooze {event.snoozes:,} of {SNOOZES_MAX:,} in a row"


def _attempt_parts(event: JobSucceeded | JobEnded) -> Iterator[str]:
    outcome = event.outcome if isinstance(event, JobEnded) else "succeeded"
    yield f"job {event.id} {outcome}"
    yield event.slot or ""
    yield attempt_words(event.attempt or 0)
    if isinstance(event, JobEnded):
        yield event.kind
        yield _verdict(event)
        return
    if event.duration_s is not None:
        yield show_duration(event.duration_s)
    if event.peak_rss_bytes is not None:
        yield show_size(event.peak_rss_bytes)
    yield event.kind


def _verdict(event: JobEnded) -> str:
    """Return why an attempt ended, what it cost, and what comes next.

    If the job is not retried, the reason names the budget that is used up.
    """
    why = event.reason or event.error_class or ""
    match event.state:
        case JobState.PENDING | JobState.RUNNABLE:
            cost = spent_words(event.spent, reset=event.counters_reset)
            again = f"in {show_duration(event.delay_s)}" if event.delay_s else "at once"
            parts = ["; ".join(filter(None, (why, cost))), f"again {again}"]
        case _:
            reset = f"({RESET})" if event.spent and event.counters_reset else ""
            parts = [" ".join(filter(None, (why, reset))), f"now {event.state}"]
    return ", ".join(filter(None, parts))


def _supervisor_parts(event: Event) -> Iterator[str]:  # noqa: C901, PLR0912 - a case each
    match event:
        case SupervisorReady():
            yield f"supervisor {event.pid} ready"
            sizes = list(event.pools.items())[:_ITEMS_MAX]
            yield " ".join(f"{name}={size}" for name, size in sizes)
            yield event.store
            yield event.app
        case SupervisorDraining():
            yield f"supervisor {event.pid} draining"
            said = f"{event.running} running get {show_duration(event.drain_s)}"
            if event.running and event.estimate_s is not None:
                said = f"{said}, about {show_duration(event.estimate_s)} needed"
            yield said
            yield event.reason
        case SupervisorStopped():
            yield f"supervisor {event.pid} {event.how}"
            yield f"{event.handed_back} handed back, {event.leases_held} leases held"
            yield f"after {show_duration(event.took_s)}" if event.took_s >= 1.0 else ""
        case Alarm():
            yield "alarm"
            yield event.text
        case RunReclaimed():
            how = "presumed dead: its lease expired" if event.presumed else "died"
            yield f"supervisor {event.pid} {how}"
            yield f"{event.handed_back} jobs handed back, {event.lost} lost"
            yield f"{event.killed} processes killed"
            yield f"host {event.host}"
        case StoreTrouble():
            yield "store unavailable"
            yield event.error
            yield f"next try in {show_duration(event.again_in_s)}"
        case StoreBack():
            yield "store available again"
            yield f"after {show_duration(event.away_s)}"
        case StaleSettlement():
            yield f"job {event.id} stale"
            yield f"{event.outcome or 'hand-back'} refused: its lease was superseded"
        case (
            LeaseFenced()
            | LeaseRegained()
            | MetricsRefused()
            | StoreConcern()
            | SupervisorOutdated()
            | StoreWentBack()
        ):
            yield from _lease_parts(event)
        case UnknownKinds():
            yield "jobs of unknown kinds are waiting"
            yield _unknown(event.kinds)
            yield "no handler here; deploy the application that has them"
        case SchedulesChanged() | ScheduleRefused() | SchedulePaused() | TicksMissed():
            yield from _schedule_parts(event)
        case Beside():
            yield from beside_parts(event)
        case _:
            yield from _pool_parts(event)


def _schedule_parts(
    event: SchedulesChanged | ScheduleRefused | SchedulePaused | TicksMissed,
) -> Iterator[str]:
    match event:
        case SchedulesChanged():
            yield "schedules changed"
            for what in ("added", "changed", "retired"):
                if names := getattr(event, what):
                    yield f"{what}: {_names(names)}"
        case ScheduleRefused():
            yield f"schedule {event.schedule} not kept"
            yield event.reason
        case SchedulePaused():
            yield f"schedule {event.schedule} paused"
            yield event.reason
            yield f"jobpool schedules resume {event.schedule}"
        case TicksMissed():
            yield f"schedule {event.schedule} was missed"
            if event.missed:
                yield f"{event.missed} ticks got no job"
            if event.late_s:
                yield f"a job was enqueued {show_duration(round(event.late_s))} late"


def _lease_parts(
    event: LeaseFenced
    | LeaseRegained
    | MetricsRefused
    | StoreConcern
    | StoreWentBack
    | SupervisorOutdated,
) -> Iterator[str]:
    match event:
        case LeaseFenced():
            silent = show_duration(round(event.silent_s, 1))
            ended = f"{event.ended} jobs ended, {event.handed_back} handed back"
            if event.lapsed:
                yield "lease expired"
                yield f"{ended}: other hosts may have taken them"
                yield f"last renewed {silent} ago"
            else:
                yield "lease not renewed"
                yield f"could not renew for {silent}"
                yield f"{ended}, so that no other host runs them twice"
        case StoreWentBack():
            yield "store went back in time"
            yield event.error
        case LeaseRegained():
            yield "lease renewed again"
            away = show_duration(round(event.away_s, 1))
            yield f"jobs are leased again, after {away}"
        case MetricsRefused():
            yield f"metrics cannot be served at {event.reason}"
            yield "trying again until it is free"
        case StoreConcern():
            yield "store"
            yield event.text
        case SupervisorOutdated():
            yield f"supervisor {event.pid} outdated"
            yield f"jobpool {event.version} knows formats up to {event.format}"
            yield "features of a newer release are in use in the store"
            yield "it takes no more jobs and drains; upgrade jobpool here"


def _pool_parts(event: Event) -> Iterator[str]:  # noqa: C901 - a case each
    match event:
        case ZygoteFailed():
            yield f"pool {event.pool} cannot start children"
            yield event.reason
            if event.again_in_s is not None:
                yield f"next try in {show_duration(event.again_in_s)}"
        case ImportNotShared():
            yield f"pool {event.pool} imports the application for itself"
            yield event.reason
        case PoolResized():
            yield f"pool {event.pool} resized"
            yield f"{event.size_from} to {event.size_to} children"
            yield event.reason
        case IsolationReduced():
            yield f"pools {' '.join(event.pools)}: {event.measure} not in force"
            yield event.why
            yield f"not prevented: {event.stops}"
        case MemoryAwaited() | HostMemoryShort() | SlotsBeyondMemory():
            yield from _memory_parts(event)
        case PoolReloaded():
            yield f"pool {event.pool} reloaded"
            yield "its children are replaced as they become idle"
        case PoolsLeft():
            shown = (
                f"{pool} ({count} {'kind' if count == 1 else 'kinds'})"
                for pool, count in event.pools.items()
            )
            yield f"pools left to other supervisors: {', '.join(shown)}"
        case PoolUnused():
            yield f"pool {event.pool} is used by no kind of the application"
            yield event.hint
        case IncidentOpened() | IncidentEnded() | AlertNotSent() | NotWatched():
            yield from alert_parts(event)
        case _:
            yield from _breaker_parts(event)


def _memory_parts(
    event: MemoryAwaited | HostMemoryShort | SlotsBeyondMemory,
) -> Iterator[str]:
    match event:
        case SlotsBeyondMemory():
            yield f"{event.usable} of {event.slots} slots can be used at once"
            budget = show_size(event.budget_bytes)
            yield f"by their limits no more fit into memory_budget {budget}"
            yield event.until
        case MemoryAwaited():
            yield f"pool {event.pool} waits for memory"
            yield f"job {event.id} may use {show_size(event.memory_bytes)}"
            budget = show_size(event.budget_bytes)
            yield f"{show_size(event.used_bytes)} of memory_budget {budget} is reserved"
            yield event.kind
        case HostMemoryShort():
            yield "the host is short of memory: nothing begins beside what runs"
            free, kept = show_size(event.available_bytes), event.reserve_bytes
            yield f"{free} available, {show_size(kept)} are kept free"
            yield _pressure(event.pressure)


def _pressure(percent: float | None) -> str:
    return "" if percent is None else f"memory pressure {percent:.0f} %"


def _breaker_parts(event: Event) -> Iterator[str]:  # noqa: C901 - a case each
    match event:
        case JobSuspected():
            yield f"job {event.id} suspected"
            yield "it was running when its supervisor or host died; it runs alone next"
            yield f"deaths while it ran alone: {event.recoveries}"
            yield event.kind
        case JobCleared():
            yield f"job {event.id} cleared"
            if event.ran_s is None:
                yield "its attempt ended"
            else:
                yield f"it has run alone for {show_duration(event.ran_s)}"
            yield event.kind
        case KindSlowed():
            yield f"kind {event.kind} {event.state}"
            yield f"{event.crashes} different jobs crashed in a row"
            yield f"next try in {show_duration(event.again_in_s)}"
            yield "its other jobs wait; to resume: jobpool resume --kind"
        case KindResumed():
            yield f"kind {event.kind} resumed"
            yield event.reason
        case QuotasHeldBack():
            yield f"waiting with quotas: {_names(event.kinds) or 'all kinds'}"
            yield event.reason
        case QuotaDiffers():
            yield f"quota {event.quota} differs between supervisors"
            yield event.reason
        case DownstreamOpened():
            yield f"breaker of quota {_bucket(event)} opened"
            yield f"{event.failures} of {event.requests} requests have failed"
            pause_s = max(0, event.until_ms - event.at_ms) / 1000
            yield f"nothing begins for {show_duration(round(pause_s))}, then one probe"
            yield f"see: jobpool quotas {event.quota}"
        case DownstreamClosed():
            yield f"breaker of quota {_bucket(event)} closed"
            yield "its probe was answered"
        case RateTooTight():
            yield f"no job of kind {event.kind} begins"
            late, within = map(show_duration, (event.late_s, event.begin_within_s))
            yield f"lease and slot took {late}, its rate allows {within}"
            yield "make the store faster, or raise the quota's burst"
            yield "see: jobpool manual flow-control"
        case _:
            yield event.name


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - _ITEMS_MAX
    end = f" and {more} more" if more > 0 else ""
    return f"{', '.join(names[:_ITEMS_MAX])}{end}"


def _unknown(kinds: tuple[UnknownKind, ...]) -> str:
    shown = ", ".join(
        f"{k.kind} ({k.jobs} job{'s' * (k.jobs != 1)}, "
        f"oldest {show_duration(k.oldest_age_s)})"
        for k in kinds[:_ITEMS_MAX]
    )
    more = len(kinds) - _ITEMS_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _bucket(event: DownstreamOpened | DownstreamClosed) -> str:
    return f"{event.quota}{' for one value' if event.is_one_of_many else ''}"
