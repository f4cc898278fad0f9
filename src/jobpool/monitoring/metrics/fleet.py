"""The gauges of the whole fleet, read from the store: for exactly one exporter.

Theory of operation. A thread reads the store every few seconds, and less often if that
takes long: at most a twentieth of its time goes into it. A scrape gets what was read
last, and how old that is; it never waits for the store, but for the very first time. A
store that is away leaves the gauges as they were, with `jobpool_fleet_up` 0.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.jobs.flow import FlowState
from jobpool.core.jobs.job import JobState
from jobpool.core.safe_text import unexpected
from jobpool.errors import JobpoolError
from jobpool.monitoring.metrics import catalogue as cat
from jobpool.monitoring.metrics.counts import Values
from jobpool.monitoring.scaling import Scaling, scaling_of
from jobpool.store.protocol import Store, is_shared
from jobpool.store.records.reading import DepthRow
from jobpool.store.records.runs import Run

EVERY_S = 10.0
_SHARE = 0.05
"""Of the time: the most that goes into reading."""
_FIRST_S = 5.0
"""A scrape waits so long for what is read first."""
_SILENT_S = 60.0
"""A supervisor that was not heard of for longer, nor within its lease, is silent."""
_GONE_S = 3600.0
"""One of another host, not heard of since its lease ran out so long ago, is none any
more: others have taken its jobs. Its run ends after a day, in case it comes back."""
_COUNTED = (
    *(JobState.PENDING, JobState.RUNNABLE, JobState.WAITING, JobState.LEASED),
    *(JobState.DEAD, JobState.QUARANTINED),
)
_NORMAL = "normal"
"""The band of jobs without a priority; the others have series once they have jobs."""
_OPEN_FLOWS = (FlowState.BUILDING, FlowState.OPEN, FlowState.PAUSED)
_FLEET = tuple(one for one in cat.CATALOGUE if one.where is cat.Where.FLEET)


class FleetMetrics(Collector):
    """Reads the store in a thread of its own, until closed.

    Args:
        opener: opens the store; called in that thread.
        by_tenant: also counts by tenant.
        every_s: how often the store is read, at most.
        clock: for ages.
    """

    def __init__(
        self,
        opener: Callable[[], Store],
        *,
        by_tenant: bool = False,
        every_s: float = EVERY_S,
        clock: Clock | None = None,
    ) -> None:
        self._opener = opener
        self._by_tenant = by_tenant
        self._every_s = every_s
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._values = Values()
        self._scaling: Mapping[str, Scaling] = {}
        self._read_s: float | None = None
        """When they were read; monotonic."""
        self._is_up = False
        self.error = ""
        """Why the store could not be read; "": it could."""
        self.tried = threading.Event()
        """The store was read, or could not be."""
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._read_all, name="jobpool-fleet", daemon=True
        )

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Read no more."""
        self._closing.set()
        self._thread.join(_FIRST_S)

    def scaling(self) -> Mapping[str, Scaling] | None:
        """Return what each pool needs, by name; None: the store cannot be read."""
        self.tried.wait(_FIRST_S)
        with self._lock:
            return self._scaling if self._is_up else None

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; called at each scrape."""
        self.tried.wait(_FIRST_S)
        with self._lock:
            values = self._values
            values.set(cat.FLEET_UP, to=float(self._is_up))
            if self._read_s is not None:
                age_s = self._clock.monotonic_s() - self._read_s
                values.set(cat.FLEET_AGE, to=age_s)
            families = list(values.families(_FLEET))
        yield from families

    def describe(self) -> Iterator[Family]:
        """Yield none: the registry need not look before there is anything."""
        return iter(())

    def _read_all(self) -> None:
        while not self._closing.is_set():
            try:
                with closing(self._opener()) as store:
                    self._read_until_closed(store)
            except JobpoolError as exc:
                self._is_up, self.error = False, str(exc)
            except Exception as exc:  # noqa: BLE001 - else nobody would read any more
                self._is_up, self.error = False, unexpected(exc)
            self.tried.set()
            self._closing.wait(self._every_s)

    def _read_until_closed(self, store: Store) -> None:
        wait_s = 0.0
        while not self._closing.wait(wait_s):
            began_s = self._clock.monotonic_s()
            scaling = scaling_of(store)
            values = values_of(store, scaling, by_tenant=self._by_tenant)
            now_s = self._clock.monotonic_s()
            took_s = now_s - began_s
            values.set(cat.FLEET_READ, to=took_s)
            wait_s = max(self._every_s, took_s / _SHARE)
            with self._lock:
                self._values, self._read_s = values, now_s
                self._scaling = {one.pool: one for one in scaling}
            self._is_up, self.error = True, ""
            self.tried.set()


def values_of(
    store: Store, scaling: Iterable[Scaling], *, by_tenant: bool = False
) -> Values:
    """Read all gauges once.

    Args:
        store: has the jobs.
        scaling: what each pool needs.
        by_tenant: also count by tenant.

    Raises:
        StoreError: the store cannot be read.
    """
    values, runs, now_ms = Values(), store.open_runs(), store.position().now_ms
    _supervisors(values, runs, now_ms, is_shared=is_shared(store))
    published = [(record.kind, record.pool) for record in store.kinds()]
    for row in scaling:
        values.set(cat.WANTED, row.pool, to=row.wanted)
        if row.time_to_drain_s is not None:
            values.set(cat.DRAIN, row.pool, to=row.time_to_drain_s)
    _jobs(values, store.depths(), published)
    _waiting(values, store, published)
    for pause in store.pauses():
        values.set(cat.PAUSED, pause.what, pause.name, to=1)
    _quotas(values, store)
    _schedules(values, store, now_ms)
    flows = store.open_flows()
    for flow_state in _OPEN_FLOWS:
        values.set(cat.FLOWS, flow_state, to=flows.get(flow_state, 0))
    values.set(cat.SUSPECT_JOBS, to=len(store.suspects()))
    if by_tenant:
        for tenant, state, jobs in store.tenant_depths():
            values.set(cat.TENANT_JOBS, tenant, state, to=jobs)
    return values


def _quotas(values: Values, store: Store) -> None:
    for quota in store.quotas():
        values.set(cat.QUOTA_USED, quota.name, to=quota.used)
        values.set(cat.QUOTA_WAITING, quota.name, to=quota.waiting)
        values.set(cat.QUOTA_FULL, quota.name, to=quota.blocked)
        if quota.quota is not None and quota.quota.concurrency is not None:
            values.set(cat.QUOTA_CAP, quota.name, to=quota.quota.concurrency)
        if quota.bucket is not None and quota.bucket.service is not None:
            is_open = quota.bucket.service.until_ms is not None
            values.set(cat.QUOTA_BREAKER, quota.name, to=float(is_open))


def _schedules(values: Values, store: Store, now_ms: int) -> None:
    for schedule in store.schedules():
        if schedule.retired_ms is None:
            name, next_ms = schedule.declared.name, schedule.next_ms
            late_ms = 0 if next_ms is None else max(0, now_ms - next_ms)
            values.set(cat.NEXT_TICK, name, to=late_ms / 1000)
            is_paused = schedule.paused_ms is not None
            values.set(cat.SCHEDULE_PAUSED, name, to=float(is_paused))


def _supervisors(
    values: Values, runs: Sequence[Run], now_ms: int, *, is_shared: bool
) -> None:
    """Count supervisors by pool; one that is silent may be dead."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    ages_s = [0.0]
    for run in runs:
        is_gone = is_shared and now_ms > run.lease_until_ms + _GONE_S * 1000
        age_s = (now_ms - run.heartbeat_at_ms) / 1000
        is_late = age_s > _SILENT_S and now_ms > run.lease_until_ms
        if not is_gone:
            ages_s.append(age_s)
        for pool in run.pools:
            found[pool]["silent" if is_late else "alive"] += not is_gone
    for pool, states in found.items():
        for state in ("alive", "silent"):
            values.set(cat.SUPERVISORS, pool, state, to=states[state])
    values.set(cat.HEARTBEAT, to=max(ages_s))


def _jobs(
    values: Values, rows: Sequence[DepthRow], published: Sequence[tuple[str, str]]
) -> None:
    """Count jobs; series of published kinds are there with 0 as well."""
    for kind, pool in published[: cat.KINDS_MAX]:
        for state in _COUNTED:
            values.set(cat.JOBS, kind, pool, state, _NORMAL, to=0)
    known = {kind for kind, _ in published[: cat.KINDS_MAX]}
    sums: Counter[tuple[str, str, str, str]] = Counter()
    for row in sorted(rows, key=lambda row: -row.jobs):
        if row.kind not in known and len(known) < cat.KINDS_MAX:
            known.add(row.kind)
        kind = row.kind if row.kind in known else cat.OTHER
        sums[kind, row.pool, row.state, row.band] += row.jobs
    for labels, jobs in sums.items():
        values.set(cat.JOBS, *labels, to=jobs)


def _waiting(
    values: Values, store: Store, published: Sequence[tuple[str, str]]
) -> None:
    """Say how long due jobs wait, and which of them more supervisors would not help."""
    for kind, pool in published[: cat.KINDS_MAX]:
        for metric in (cat.OLDEST, cat.BLOCKED):
            values.set(metric, kind, pool, to=0)
    for row in store.waiting()[: cat.KINDS_MAX]:
        values.set(cat.OLDEST, row.kind, row.pool, to=row.oldest_age_s)
        values.set(cat.BLOCKED, row.kind, row.pool, to=row.blocked)
        if not row.known:
            values.set(cat.UNKNOWN, row.kind, row.pool, to=row.jobs)
