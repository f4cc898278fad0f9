"""Events of a supervisor: its life, its store, its leases, and its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from jobpool.core.events.event import Event, Level
from jobpool.core.isolation.cgroups import Control
from jobpool.core.jobs.outcome import Outcome


class SupervisorReady(Event, frozen=True, kw_only=True):
    """All pools are up; jobs are being leased."""

    name = "supervisor_ready"

    pid: int
    run_id: str
    pools: Mapping[str, str]
    """Sizes as written: ``{"cpu": "2..8"}``."""
    store: str
    app: str
    version: str
    cgroup: tuple[Control, ...] = ()
    """Controls in force by cgroup: ``cgroup.kill``, ``memory.max``, ``pids.max``."""
    cgroup_missing: Mapping[Control, str] = {}
    """Why the others are not in force."""


class SupervisorDraining(Event, frozen=True, kw_only=True):
    """No new leases; running attempts get the drain window."""

    name = "supervisor_draining"

    pid: int
    reason: str
    """Its cause: ``SIGTERM``, ``nothing is due``."""
    running: int
    drain_s: float
    estimate_s: float | None = None
    """How long it probably takes, by what the running kinds have usually taken; None:
    one of them is unknown, or has taken longer already."""


class SupervisorOutdated(Event, frozen=True, kw_only=True):
    """The store's jobs need newer code; no more leases, and it drains."""

    name = "supervisor_outdated"
    level = Level.ERROR

    pid: int
    version: str
    format: int
    """The highest that its code can honour (`core.formats`); the store's least is
    above it."""


class SupervisorStopped(Event, frozen=True, kw_only=True):
    """All children have ended; the process exits next."""

    name = "supervisor_stopped"

    pid: int
    how: str = "drained"
    """``drained`` or ``stopped``."""
    handed_back: int = 0
    """Attempts that the end of the drain window interrupted."""
    leases_held: int = 0
    """Leases that could not be handed back; the next start reclaims them."""
    took_s: float = 0.0
    """From the first request to end until now."""


class IsolationReduced(Event, frozen=True, kw_only=True):
    """A wanted isolation measure is not in force here."""

    name = "isolation_reduced"
    level = Level.WARNING

    pools: tuple[str, ...]
    measure: str
    stops: str
    """What it would prevent."""
    why: str


class Alarm(Event, frozen=True, kw_only=True):
    """A condition that a person must deal with."""

    name = "alarm"
    level = Level.ERROR

    text: str


class RunReclaimed(Event, frozen=True, kw_only=True):
    """A dead supervisor's jobs were reclaimed."""

    name = "run_reclaimed"
    level = Level.WARNING

    run_id: str
    host: str
    pid: int
    handed_back: int
    """Leases whose attempt had not begun."""
    lost: int
    """Attempts that were running; their ends were not seen."""
    killed: int
    """Processes of the dead run that were still alive."""
    presumed: bool = False
    """Its death was not seen, but its leases had expired."""


class StoreTrouble(Event, frozen=True, kw_only=True):
    """The store is unavailable; running jobs go on."""

    name = "store_trouble"
    level = Level.ERROR

    error: str
    again_in_s: float


class StoreBack(Event, frozen=True, kw_only=True):
    """The store is available again."""

    name = "store_back"
    level = Level.WARNING

    away_s: float


class StoreWentBack(Event, frozen=True, kw_only=True):
    """The store holds less than it did: this supervisor ends, and writes nothing."""

    name = "store_went_back"
    level = Level.ERROR

    error: str


class StaleSettlement(Event, frozen=True, kw_only=True):
    """A settlement under a superseded lease was refused; it changed nothing."""

    name = "stale_settlement"
    level = Level.WARNING

    id: int
    token: int
    outcome: Outcome | None


class LeaseFenced(Event, frozen=True, kw_only=True):
    """Jobs were ended because another supervisor may hold their leases by now."""

    name = "lease_fenced"
    level = Level.ERROR

    silent_s: float
    """Time since the last successful renewal was sent."""
    ended: int
    """Attempts that were running."""
    handed_back: int
    """Leases whose attempt had not begun."""
    lapsed: bool = False
    """The leases had expired before it was noticed: others may have taken some."""


class LeaseRegained(Event, frozen=True, kw_only=True):
    """A renewal succeeded again: jobs are being leased."""

    name = "lease_regained"
    level = Level.WARNING

    away_s: float
    """How long no job was leased."""


class MetricsRefused(Event, frozen=True, kw_only=True):
    """Metrics cannot be served: somebody else has the address; it is tried again."""

    name = "metrics_refused"
    level = Level.WARNING

    reason: str


class StoreConcern(Event, frozen=True, kw_only=True):
    """The database works, but an operator should check it."""

    name = "store_concern"
    level = Level.WARNING

    text: str


class UnknownKind(msgspec.Struct, frozen=True):
    """Due jobs of a kind that this supervisor's application does not know."""

    kind: str
    jobs: int
    oldest_age_s: float


class UnknownKinds(Event, frozen=True, kw_only=True):
    """Due jobs wait for an application that knows them."""

    name = "unknown_kinds"
    level = Level.WARNING

    kinds: tuple[UnknownKind, ...]


class Beside(Event, frozen=True, kw_only=True):
    """Common class of the events of what runs beside a supervisor."""


class RestartNeeded(Beside, frozen=True, kw_only=True):
    """Settings that a reload has read are in force only after a restart."""

    name = "restart_needed"
    level = Level.WARNING

    settings: tuple[str, ...]
    """``[alerts]``, ``[traces] otlp``."""


class LinesDropped(Beside, frozen=True, kw_only=True):
    """The log could not keep up with the events."""

    name = "lines_dropped"
    level = Level.WARNING

    lines: int


class ReportsDropped(Beside, frozen=True, kw_only=True):
    """Reports to Sentry were lost: it is silent, refuses them, or is sent too many."""

    name = "reports_dropped"
    level = Level.WARNING

    reports: int
    reason: str


class SpansDropped(Beside, frozen=True, kw_only=True):
    """Spans of attempts were lost: the receiver is away, or they were too many."""

    name = "spans_dropped"
    level = Level.WARNING

    spans: int
    reason: str


def beside_parts(event: Beside) -> Iterator[str]:
    """Yield what an event says to people: see `sentences`."""
    match event:
        case LinesDropped():
            yield f"log … {event.lines} lines dropped"
        case SpansDropped():
            yield from (f"traces … {event.spans} spans dropped", event.reason)
        case RestartNeeded():
            yield f"{', '.join(event.settings)} changed"
            yield "in force after a restart; until then as they were at the start"
        case ReportsDropped():
            yield from (f"sentry … {event.reports} reports dropped", event.reason)
