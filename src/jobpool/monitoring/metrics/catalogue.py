"""Every metric: its name, type, labels and meaning. One table; nothing else makes any.

Names and units follow prometheus.io/docs/practices/naming: base units, `_total` for
counters. Labels are bounded: kinds and pools are those of applications, schedules and
quotas those that are declared. Of more kinds than `KINDS_MAX` the others are `other`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

KINDS_MAX = 500
"""Kinds with series of their own."""
OTHER = "other"
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0),
)
BYTES = tuple(float(2**exponent) for exponent in range(24, 36))
"""16 MiB to 32 GiB."""
ATTEMPTS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0)


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Where(StrEnum):
    """Who exports a metric."""

    SUPERVISOR = "supervisor"
    """Each supervisor for itself: add them up."""
    FLEET = "fleet"
    """`jobpool metrics`, from exactly one place: never add them up."""


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    where: Where
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"jobpool_{name}", Kind.COUNTER, Where.SUPERVISOR, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"jobpool_{name}", Kind.GAUGE, Where.SUPERVISOR, text, labels)


def _histogram(
    name: str, buckets: tuple[float, ...], text: str, *labels: str
) -> Metric:
    kind, where = Kind.HISTOGRAM, Where.SUPERVISOR
    return Metric(f"jobpool_{name}", kind, where, text, labels, buckets)


def _fleet(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"jobpool_{name}", Kind.GAUGE, Where.FLEET, text, labels)


# -- a supervisor's own ------------------------------------------------------------

INFO = _gauge("supervisor_info", "1; what runs here.", "version", "app")
ATTEMPTS_ENDED = _counter(
    "attempts_total", "Attempts that have ended.", "kind", "pool", "outcome"
)
RUN = _histogram(
    *("attempt_run_seconds", SECONDS, "How long attempts ran."), "kind", "pool"
)
WAIT = _histogram(
    "attempt_wait_seconds",
    SECONDS,
    "From when a job was due until its attempt began; of attempts that succeeded.",
    *("kind", "pool"),
)
PEAK = _histogram(
    "attempt_peak_memory_bytes",
    BYTES,
    "The highest resident memory of an attempt's processes.",
    *("kind", "pool"),
)
ATTEMPTS_OF_SUCCESS = _histogram(
    "attempts_per_success", ATTEMPTS, "Which attempt of its job succeeded.", "kind"
)
RETRIES = _counter("retries_total", "Jobs that will be tried again.", "kind")
SNOOZES = _counter("snoozes_total", "Attempts that snoozed or were throttled.", "kind")
DEAD = _counter("dead_total", "Jobs that became dead.", "kind")
QUARANTINED = _counter("quarantined_total", "Jobs that were quarantined.", "kind")
KILLS = _counter("kills_total", "Children that jobpool has killed.", "cause")
SUSPECTS = _counter(
    "suspects_total", "Jobs that were running when a supervisor died.", "kind"
)
RECLAIMED = _counter(
    "leases_reclaimed_total",
    "Leases taken back from dead supervisors; `lost` ones were running.",
    "how",
)
EXPIRED = _counter(
    "leases_expired_total", "Attempts ended here because their lease may have lapsed."
)
STALE = _counter(
    "stale_settlements_total", "Ends that came under a superseded lease; refused."
)
SLOTS = _gauge("slots", "Slots of a pool.", "pool")
SLOTS_BUSY = _gauge("slots_busy", "Slots with a job.", "pool")
SLOTS_WANTED = _gauge(
    "slots_wanted", "Slots that a pool would have if nothing kept it.", "pool"
)
SLOTS_HELD = _gauge(
    "slots_held", "1: something keeps all of a pool's jobs from beginning.", "pool"
)
BREAKER = _gauge(
    "kind_breaker_state",
    "Circuit breaker of a kind that crashes: 0 closed, 1 slowed, 2 open.",
    "kind",
)
SINCE_LEASE = _gauge(
    "last_lease_seconds", "Time since this supervisor was last granted a job."
)
STORE_UP = _gauge("store_up", "0: this supervisor cannot reach its store.")
COMMIT = _gauge(
    "store_commit_seconds", "Time of the last commits, by quantile.", "quantile"
)
LOCK_WAITS = _gauge("store_lock_waits", "Sessions that wait for a lock (PostgreSQL).")
CONNECTIONS = _gauge("store_connections", "Connections to the server (PostgreSQL).")
CONNECTIONS_MAX = _gauge("store_connections_max", "The most that it takes.")
HOST_CPU = _gauge("host_cpu_busy_ratio", "Share of this host's processors in use.")
HOST_AVAILABLE = _gauge("host_memory_available_bytes", "Available memory of this host.")
HOST_PRESSURE = _gauge(
    "host_pressure_ratio",
    "Share of the last 10 s in which programs waited (PSI).",
    "resource",
)
TICKS_MISSED = _counter("ticks_missed_total", "Ticks that got no job.", "schedule")
TICKS_LATE = _gauge("tick_late_seconds", "How late the last tick was.", "schedule")
DOWNSTREAM = _counter(
    "downstream_opened_total", "Breakers of services that have opened.", "quota"
)
ALARMS = _counter("alarms_total", "Conditions that a person must deal with.")
LINES_DROPPED = _counter("log_lines_dropped_total", "Lines that the log lost.")
SPANS_DROPPED = _counter("spans_dropped_total", "Spans of attempts that were lost.")

# -- the fleet ---------------------------------------------------------------------

FLEET_UP = _fleet("fleet_up", "0: the store cannot be read; the other gauges are old.")
FLEET_AGE = _fleet("fleet_age_seconds", "How old these gauges are.")
FLEET_READ = _fleet("fleet_read_seconds", "How long it took to read them.")
JOBS = _fleet(
    "jobs",
    "Unfinished, dead and quarantined jobs. Bands: low (below 0), normal, high.",
    *("kind", "pool", "state", "band"),
)
TENANT_JOBS = _fleet("tenant_jobs", "Unfinished jobs of a tenant.", "tenant", "state")
OLDEST = _fleet(
    "oldest_runnable_age_seconds",
    "Age of the oldest due job.",
    "kind",
    "pool",
)
BLOCKED = _fleet(
    "jobs_blocked", "Due jobs that wait for a quota or a breaker.", "kind", "pool"
)
PAUSED = _fleet("paused", "1: it is paused.", "what", "name")
UNKNOWN = _fleet(
    "unknown_kind_jobs", "Due jobs of a kind that no supervisor knows.", "kind", "pool"
)
SUPERVISORS = _fleet(
    "supervisors",
    "Supervisors that serve a pool, by whether they are heard of.",
    *("pool", "state"),
)
WANTED = _fleet(
    "wanted_replicas",
    "Supervisors for all that runs or is due in a pool, with the slots that one has.",
    "pool",
)
DRAIN = _fleet(
    "time_to_drain_seconds",
    "How long what is due in a pool takes at the rate of the last minute.",
    "pool",
)
HEARTBEAT = _fleet(
    "heartbeat_age_seconds", "Since when the quietest supervisor was not heard of."
)
QUOTA_USED = _fleet("quota_used", "Permits of a cap that are held.", "quota")
QUOTA_CAP = _fleet("quota_cap", "The cap.", "quota")
QUOTA_WAITING = _fleet("quota_waiting_jobs", "Jobs that wait for a quota.", "quota")
QUOTA_FULL = _fleet(
    "quota_full_buckets",
    "Buckets of a quota that are full, used up or told to wait.",
    "quota",
)
QUOTA_BREAKER = _fleet(
    "downstream_breaker_open",
    "1: the breaker of its service is open.",
    "quota",
)
NEXT_TICK = _fleet(
    "schedule_late_seconds", "How long a schedule's next tick is overdue.", "schedule"
)
SCHEDULE_PAUSED = _fleet("schedule_paused", "1: it is paused.", "schedule")
FLOWS = _fleet("flows", "Flows that have not ended.", "state")
SUSPECT_JOBS = _fleet("suspect_jobs", "Jobs that run alone until they are cleared.")

CATALOGUE: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
