"""The overview: what needs somebody first, then how the pools fare."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.usage.sketch import Measure, quantile
from jobpool.core.rules.waits import Cause
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.live.live import Known
from jobpool.dashboard.live.readers import HOUR_MINUTES, Backlog, Usage
from jobpool.dashboard.plots import Columns, Stack, Tick, columns, stack
from jobpool.dashboard.reading import Unknown
from jobpool.dashboard.rendering import counted
from jobpool.dashboard.screens.home.needs import Needs, needs_of
from jobpool.monitoring.glance.glance import Glance, PoolRow, Running
from jobpool.store.records.reading import MINUTE_MS, merged
from jobpool.words.pauses import paused_words

_KINDS = 6
_P99 = 0.99
_OLD_MS = 30_000
_NEAR, _CLOSE = 0.9, 0.75
"""Shares of its memory limit from which a kind's P99 is worth a colour."""
_HELD_BY = {
    Cause.SLOTS: "no free slot",
    Cause.QUOTA: "a quota",
    Cause.BREAKER: "a service that is down",
    Cause.BUDGET: "a budget of retries",
    Cause.PAUSE: "a pause",
    Cause.MEMORY: "memory of the hosts",
    Cause.SUSPECTS: "suspects, which run one at a time",
    Cause.CRASHES: "crashes of their kind",
    Cause.UNKNOWN: "no supervisor knows their kind",
}


@dataclass(frozen=True)
class Pool:
    """A pool as it is drawn."""

    row: PoolRow
    columns: Columns
    sizes: str
    """``4 of 8 slots``."""
    why: str
    """Of its size, or of what its jobs wait for."""
    oldest_s: float | None


@dataclass(frozen=True)
class Held:
    """Jobs that wait for the same."""

    by: str
    jobs: int
    share: float
    """Of the largest."""
    oldest_s: float | None


@dataclass(frozen=True)
class Hour:
    """What has ended in the last hour."""

    plot: Stack
    times: tuple[Tick, ...]
    """Moments, in milliseconds as text."""
    minutes: tuple[int, ...]
    succeeded: int
    failed: int


@dataclass(frozen=True)
class KindMemory:
    """How near to its limit a kind comes."""

    kind: str
    pool: str
    p99_bytes: float
    is_least: bool
    limit_bytes: int
    attempts: int

    @property
    def share(self) -> float:
        """P99 as a share of the limit."""
        return self.p99_bytes / self.limit_bytes

    @property
    def tone(self) -> str:
        """The colour of its meter."""
        return "bad" if self.share >= _NEAR else "warn" if self.share >= _CLOSE else ""


@dataclass(frozen=True)
class Overview:
    """What the page shows."""

    glance: Glance
    needs: Needs
    pools: tuple[Pool, ...]
    hosts: int
    hour: Hour | Unknown
    held: tuple[Held, ...] | Unknown
    due: int
    kinds: tuple[KindMemory, ...] | Unknown
    counted_ms: int | None
    """When what waits was counted, if that is some time ago."""


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    known = await asked.served.live.known()
    return asked.page("overview.html", basis=known.basis, view=overview_of(known))


def overview_of(known: Known) -> Overview | Unknown:
    """Return what the page shows of what is known."""
    glance = known.glance
    if isinstance(glance, Unknown):
        return glance
    backlog, usage = known.backlog, known.usage
    counted = None if isinstance(backlog, Unknown) else backlog
    return Overview(
        glance=glance,
        needs=needs_of(glance, counted),
        pools=tuple(map(pool_of, glance.pools)),
        hosts=known.hosts,
        hour=backlog if isinstance(backlog, Unknown) else hour_of(backlog),
        held=backlog if isinstance(backlog, Unknown) else held_of(backlog),
        due=sum(pool.due for pool in glance.pools),
        kinds=usage if isinstance(usage, Unknown) else kinds_of(usage),
        counted_ms=_if_old(glance, counted),
    )


def _if_old(glance: Glance, backlog: Backlog | None) -> int | None:
    at_ms = None if backlog is None else backlog.counts.at_ms
    return at_ms if at_ms is not None and glance.at_ms - at_ms > _OLD_MS else None


def pool_of(row: PoolRow) -> Pool:
    """Return a pool as it is drawn: the fullest children first."""
    running = sorted(row.running, key=_fill, reverse=True)
    shares = [one.filled for one in running]
    sizes = counted(row.size, "slot")
    if row.most > row.size:
        sizes = f"{row.size:,} of {counted(row.most, 'slot')}"
    return Pool(
        row=msgspec.structs.replace(row, running=tuple(running)),
        columns=columns(shares, row.size, row.most, busy=row.busy),
        sizes=sizes,
        why=why_of(row),
        oldest_s=row.oldest_s,
    )


def _fill(one: Running) -> float:
    return one.filled or 0.0


def why_of(row: PoolRow) -> str:
    """Return why a pool has its size, or what its jobs wait for."""
    if row.pause is not None:
        return paused_words(row.pause, row.pause.since_ms or 0).lower()
    if not row.hosts:
        return "no supervisor serves it"
    if row.causes and row.due:
        cause, share = row.causes[0]
        if cause != Cause.SLOTS:
            word, _, names = cause.partition(" ")
            words = f"{word} {names}" if names else _HELD_BY.get(Cause(cause), cause)
            return f"{share * 100:.0f} % of what is due is held by {words}"
    whys = list(dict.fromkeys(host.why for host in row.hosts if host.why))
    if whys:
        return "; ".join(whys)
    idle = row.size - row.busy
    return f"{idle:,} idle" if idle > 0 else "all are busy"


def hour_of(backlog: Backlog) -> Hour:
    """Return the last hour, minute by minute; the present one is not over: left out."""
    now = (backlog.counts.at_ms or 0) // MINUTE_MS - 1
    minutes = tuple(range(now - HOUR_MINUTES + 1, now + 1))
    rows = {row.minute: row for row in backlog.minutes}
    succeeded = [rows[m].succeeded if m in rows else 0 for m in minutes]
    failed = [rows[m].failed if m in rows else 0 for m in minutes]
    plot = stack(("good", "bad"), (succeeded, failed))
    step = (plot.right - plot.left) / (HOUR_MINUTES - 1)
    times = tuple(
        Tick(plot.left + n * step, str(minutes[n] * MINUTE_MS))
        for n in range(0, HOUR_MINUTES, 15)
    )
    return Hour(plot, times, minutes, sum(succeeded), sum(failed))


def held_of(backlog: Backlog) -> tuple[Held, ...]:
    """Return what due jobs wait for, and those that are not due, the most first."""
    jobs: Counter[str] = Counter()
    places: dict[str, set[tuple[str, str]]] = {}
    for row in backlog.counts.causes:
        jobs[row.cause] += round(row.job_s)
        places.setdefault(row.cause, set()).add((row.kind, row.pool))
    ages = {(r.kind, r.pool): r.oldest_age_s for r in backlog.counts.waiting}
    found = [
        (
            _HELD_BY.get(Cause(cause), cause),
            count,
            max((ages.get(place, 0.0) for place in places[cause]), default=None),
        )
        for cause, count in jobs.items()
        if count
    ]
    later = backlog.jobs(JobState.PENDING)
    steps = backlog.jobs(JobState.WAITING)
    found += [("not due yet", later, None)] if later else []
    found += [("a step before them in their flow", steps, None)] if steps else []
    found.sort(key=lambda one: -one[1])
    most = max((one[1] for one in found), default=1)
    return tuple(Held(by, count, count / most, age) for by, count, age in found)


def kinds_of(usage: Usage) -> tuple[KindMemory, ...]:
    """Return the kinds that come nearest to their memory limits."""
    limits = {record.kind: record.memory_bytes for record in usage.kinds}
    found = []
    for (kind, pool, measure), counts in merged(usage.sketches).items():
        limit_bytes = limits.get(kind)
        p99 = quantile(counts, _P99) if measure is Measure.MEMORY else None
        if p99 is not None and limit_bytes:
            attempts = sum(one.attempts for one in counts.values())
            found.append(
                KindMemory(kind, pool, p99.value, p99.is_least, limit_bytes, attempts)
            )
    found.sort(key=lambda one: -one.share)
    return tuple(found[:_KINDS])
