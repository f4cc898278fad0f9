"""What one supervisor counts of itself: an observer that Prometheus can scrape.

Theory of operation. `observe` is called by the loop and by other threads, and must not
make them wait. Successes come many at once (`core.events.figures`) and are only put
aside; they are counted when somebody scrapes, or once many have come. Everything else
is rare, and counted at once. Series of known pools, kinds and outcomes are there from
the start, with 0: a rate over a series that appears with its first failure would not
see that failure.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from jobpool.core.events.event import Event
from jobpool.core.events.figures import AttemptsSucceeded, SupervisorFigures
from jobpool.core.events.flow import DownstreamOpened, KindResumed, KindSlowed
from jobpool.core.events.jobs import (
    JobDead,
    JobEnded,
    JobQuarantined,
    JobSnoozed,
    JobSuspected,
)
from jobpool.core.events.schedules import TicksMissed
from jobpool.core.events.supervisor import (
    Alarm,
    LeaseFenced,
    LinesDropped,
    RunReclaimed,
    SpansDropped,
    StaleSettlement,
    StoreBack,
    StoreTrouble,
    SupervisorReady,
)
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState
from jobpool.core.rules.run_report import HostReport, StoreReport
from jobpool.monitoring.metrics import catalogue as cat
from jobpool.monitoring.metrics.counts import Values

CAUSES = (
    *("timeout", "memory", "processes", "stalled", "canceled", "stopped", "recycled"),
    *("beside", "host_memory", "unmarked", "protocol"),
)
"""Why children are killed, as `SupervisorFigures.kills` has it."""
_ASIDE_MAX = 2048
"""Successes, by the batch, that wait to be counted."""
_BREAKER = {BreakerState.SLOWED: 1, BreakerState.TRYING: 1, BreakerState.OPEN: 2}
_OWN = tuple(one for one in cat.CATALOGUE if one.where is cat.Where.SUPERVISOR)


class AttemptMetrics(Collector):
    """Counts what a supervisor's events say."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aside: deque[AttemptsSucceeded] = deque()
        self._values = Values()
        self._kinds: set[str] = set()
        """Those that have series of their own."""
        self._pools: dict[str, str] = {}
        """The pool of each kind whose series are there."""
        self._heard: Mapping[type[Event], Callable[[Any], None]] = {
            SupervisorReady: self._ready,
            SupervisorFigures: self._figures,
            JobEnded: self._ended,
            JobSnoozed: lambda e: self._of_kind(cat.SNOOZES, e.kind),
            JobDead: lambda e: self._of_kind(cat.DEAD, e.kind),
            JobQuarantined: lambda e: self._of_kind(cat.QUARANTINED, e.kind),
            JobSuspected: lambda e: self._of_kind(cat.SUSPECTS, e.kind),
            RunReclaimed: self._reclaimed,
            LeaseFenced: lambda e: self._values.count(cat.EXPIRED, by=e.ended),
            StaleSettlement: lambda _e: self._values.count(cat.STALE),
            StoreTrouble: lambda _e: self._values.set(cat.STORE_UP, to=0),
            StoreBack: lambda _e: self._values.set(cat.STORE_UP, to=1),
            KindSlowed: lambda e: self._values.set(
                cat.BREAKER, self._kind(e.kind), to=_BREAKER.get(e.state, 0)
            ),
            KindResumed: lambda e: self._values.set(
                cat.BREAKER, self._kind(e.kind), to=0
            ),
            TicksMissed: self._ticks,
            DownstreamOpened: lambda e: self._values.count(cat.DOWNSTREAM, e.quota),
            Alarm: lambda _e: self._values.count(cat.ALARMS),
            LinesDropped: lambda e: self._values.count(cat.LINES_DROPPED, by=e.lines),
            SpansDropped: lambda e: self._values.count(cat.SPANS_DROPPED, by=e.spans),
        }
        lost = (cat.LINES_DROPPED, cat.SPANS_DROPPED)
        for metric in (cat.EXPIRED, cat.STALE, cat.ALARMS, *lost):
            self._values.count(metric, by=0)
        for how in ("handed_back", "lost"):
            self._values.count(cat.RECLAIMED, how, by=0)
        for cause in CAUSES:
            self._values.count(cat.KILLS, cause, by=0)

    def hears(self, kind: type[Event]) -> bool:
        """Say whether events of a class are counted."""
        return kind is AttemptsSucceeded or kind in self._heard

    def observe(self, event: Event) -> None:
        """Count an event, or put it aside."""
        if type(event) is AttemptsSucceeded:
            self._aside.append(event)
            if len(self._aside) >= _ASIDE_MAX:
                with self._lock:
                    self._count()
            return
        handle = self._heard.get(type(event))
        if handle is not None:
            with self._lock:
                handle(event)

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; called at each scrape."""
        with self._lock:
            self._count()
            families = list(self._values.families(_OWN))
        yield from families

    def describe(self) -> Iterator[Family]:
        """Yield none: the registry need not look before there is anything."""
        return iter(())

    # -- all below with the lock -----------------------------------------------------

    def _count(self) -> None:
        """Count the successes that were put aside."""
        values = self._values
        while self._aside:
            event = self._aside.popleft()
            kind = self._kind(event.kind)
            number = len(event.durations_s)
            values.count(
                cat.ATTEMPTS_ENDED, kind, event.pool, Outcome.SUCCEEDED, by=number
            )
            values.add(cat.RUN, kind, event.pool, values=event.durations_s)
            values.add(cat.WAIT, kind, event.pool, values=event.waits_s)
            values.add(cat.PEAK, kind, event.pool, values=event.peaks_bytes)
            values.add(cat.ATTEMPTS_OF_SUCCESS, kind, values=event.attempts)

    def _kind(self, kind: str) -> str:
        """Return a kind's label: its name, unless there are too many."""
        if kind in self._kinds:
            return kind
        if len(self._kinds) >= cat.KINDS_MAX:
            return cat.OTHER
        self._kinds.add(kind)
        return kind

    def _of_kind(self, metric: cat.Metric, kind: str) -> None:
        self._values.count(metric, self._kind(kind))

    def _ready(self, event: SupervisorReady) -> None:
        self._values.replace(cat.INFO, {(event.version, event.app): 1})
        self._values.set(cat.STORE_UP, to=1)

    def _ended(self, event: JobEnded) -> None:
        kind, values = self._kind(event.kind), self._values
        own = self._pools.get(event.kind, "")  # it was another supervisor's
        pool = event.slot.partition("/")[0] if event.slot else own
        values.count(cat.ATTEMPTS_ENDED, kind, pool, str(event.outcome))
        if event.state is JobState.PENDING:
            values.count(cat.RETRIES, kind)
        if event.duration_s is not None:
            values.add(cat.RUN, kind, pool, values=(event.duration_s,))
        if event.peak_rss_bytes:
            values.add(cat.PEAK, kind, pool, values=(event.peak_rss_bytes,))

    def _reclaimed(self, event: RunReclaimed) -> None:
        self._values.count(cat.RECLAIMED, "handed_back", by=event.handed_back)
        self._values.count(cat.RECLAIMED, "lost", by=event.lost)

    def _ticks(self, event: TicksMissed) -> None:
        self._values.count(cat.TICKS_MISSED, event.schedule, by=event.missed)
        self._values.set(cat.TICKS_LATE, event.schedule, to=event.late_s)

    def _figures(self, event: SupervisorFigures) -> None:
        values, pools = self._values, event.report.pools
        for pool, kinds in event.kinds.items():
            for kind in kinds:
                self._know(self._kind(kind), pool)
        for metric, field in (
            (cat.SLOTS, "size"),
            (cat.SLOTS_BUSY, "busy"),
            (cat.SLOTS_WANTED, "wanted"),
        ):
            values.replace(
                metric, {(pool,): getattr(one, field) for pool, one in pools.items()}
            )
        values.replace(
            cat.SLOTS_HELD,
            {(pool,): float(bool(one.holds)) for pool, one in pools.items()},
        )
        for cause, number in event.kills.items():
            values.total(cat.KILLS, cause, to=number)
        if event.since_lease_s is not None:
            values.set(cat.SINCE_LEASE, to=event.since_lease_s)
        self._store(event.report.store)
        self._host(event.report.host)

    def _know(self, kind: str, pool: str) -> None:
        """Make the series of a kind, with 0."""
        if self._pools.get(kind) == pool:
            return
        self._pools[kind] = pool
        values = self._values
        for outcome in Outcome:
            values.count(cat.ATTEMPTS_ENDED, kind, pool, outcome, by=0)
        for metric in (cat.RUN, cat.WAIT, cat.PEAK):
            values.add(metric, kind, pool, values=())
        values.add(cat.ATTEMPTS_OF_SUCCESS, kind, values=())
        for metric in (cat.RETRIES, cat.SNOOZES, cat.DEAD, cat.QUARANTINED):
            values.count(metric, kind, by=0)
        values.count(cat.SUSPECTS, kind, by=0)
        values.default(cat.BREAKER, kind, to=0)

    def _store(self, store: StoreReport) -> None:
        quantiles = {"0.5": store.commit_p50_ms, "0.99": store.commit_p99_ms}
        self._values.replace(
            cat.COMMIT,
            {
                (name,): value / 1000
                for name, value in quantiles.items()
                if value is not None
            },
        )
        for metric, value in (
            (cat.LOCK_WAITS, store.lock_waits),
            (cat.CONNECTIONS, store.connections),
            (cat.CONNECTIONS_MAX, store.connections_max),
        ):
            if value is not None:
                self._values.set(metric, to=value)

    def _host(self, host: HostReport) -> None:
        self._values.set(cat.HOST_CPU, to=host.cpu_busy)
        self._values.set(cat.HOST_AVAILABLE, to=host.available_bytes)
        pressures = {
            "cpu": host.cpu_pressure,
            "memory": host.memory_pressure,
            "io": host.io_pressure,
        }
        self._values.replace(
            cat.HOST_PRESSURE,
            {
                (name,): value / 100
                for name, value in pressures.items()
                if value is not None
            },
        )
