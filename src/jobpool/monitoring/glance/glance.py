"""What is known at one moment, put together from what the store tells. Pure.

Ages are by this machine's clock, as everywhere in the command line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobpool.core.jobs.job import Job, JobState
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.run_report import ReportRow
from jobpool.core.rules.waits import Cause, WaitRow
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import QuotaRow
from jobpool.store.records.reading import DepthRow, EndRow, WaitingRow
from jobpool.store.records.runs import KindRecord, Run

_SHARE_OF_CAUSE = 0.05
"""A cause that holds fewer of a pool's due jobs back is not named."""


_OF_QUOTAS = frozenset({Cause.QUOTA, Cause.BREAKER, Cause.BUDGET})
_NAMES_MAX = 2


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A supervisor's part of a pool."""

    run_id: str
    size: int
    """Slots."""
    busy: int
    most: int = 0
    """Slots that it may have; 0: it is not known."""
    why: str = ""
    """Why it has its size; "": it has not reported yet."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A leased job whose attempt is known to have begun."""

    job: Job
    """As it may be shown."""
    host: str
    limit_bytes: int | None
    limit_s: float | None
    began_ms: int

    @property
    def filled(self) -> float | None:
        """How full its child is: its memory, as a share of its limit."""
        if self.job.rss_bytes is None or not self.limit_bytes:
            return None
        return self.job.rss_bytes / self.limit_bytes


class PoolRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pool over all hosts."""

    name: str
    hosts: tuple[Host, ...]
    """Those of living supervisors; empty: nobody serves it."""
    running: tuple[Running, ...]
    ends_per_s: float
    """Of the kinds that are published for it, over the last minute."""
    due: int
    """Runnable jobs."""
    blocked: int
    """Of them: those that wait for a quota."""
    later: int
    """Pending and waiting ones."""
    oldest_s: float | None
    """How long the oldest runnable job waits; None: there is none."""
    causes: tuple[tuple[str, float], ...]
    """What due jobs wait for, each with its share of them, the most first."""
    pause: PauseRow | None

    @property
    def size(self) -> int:
        """Slots on all hosts."""
        return sum(host.size for host in self.hosts)

    @property
    def most(self) -> int:
        """Slots that it may have on all hosts."""
        return sum(max(host.size, host.most) for host in self.hosts)

    @property
    def busy(self) -> int:
        """Slots that are in use; a report may be a second older than what runs."""
        return max(sum(host.busy for host in self.hosts), len(self.running))


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What is read less often, because it costs more the more jobs wait."""

    at_ms: int | None = None
    """None: nothing was counted yet."""
    depths: Sequence[DepthRow] = ()
    waiting: Sequence[WaitingRow] = ()
    causes: Sequence[WaitRow] = ()
    quotas: Sequence[QuotaRow] = ()


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown."""

    at_ms: int
    url: str
    alive: int
    """Living supervisors."""
    silent: tuple[str, ...]
    """Why others are not, each with its pid and host."""
    pools: tuple[PoolRow, ...]
    running: tuple[Running, ...]
    """Longest first."""
    begun: int
    """Leased jobs that have just begun, or are about to."""
    deaths: tuple[EndRow, ...]
    """The latest first."""
    pauses: tuple[PauseRow, ...]
    dead: int
    quarantined: int
    counted_ms: int | None
    """When what waits was counted; None: it was not yet."""
    kinds_paused: frozenset[str]
    crashing: tuple[Saved, ...]
    """Kinds whose jobs wait, and are tried one at a time."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is read each time."""

    at_ms: int
    url: str
    runs: Sequence[Run]
    not_alive: Mapping[str, str]
    """By run: why its supervisor serves nobody; "": it does."""
    kinds: Sequence[KindRecord]
    reports: Sequence[ReportRow]
    leased: Sequence[Job]
    ends: Sequence[EndRow]
    pauses: Sequence[PauseRow]
    breakers: Sequence[Saved]


def glance_of(seen: Seen, counts: Counts) -> Glance:
    """Put together what was read."""
    living = [run for run in seen.runs if not seen.not_alive[run.id]]
    running = tuple(_running(seen))
    return Glance(
        at_ms=seen.at_ms,
        url=seen.url,
        alive=len(living),
        silent=tuple(
            f"supervisor {run.pid} on {run.host}: {why}"
            for run in seen.runs
            if (why := seen.not_alive[run.id])
        ),
        pools=tuple(_pools(seen, counts, living, running)),
        running=running,
        begun=len(seen.leased) - len(running),
        deaths=tuple(seen.ends),
        pauses=tuple(seen.pauses),
        dead=_jobs(counts.depths, JobState.DEAD),
        quarantined=_jobs(counts.depths, JobState.QUARANTINED),
        counted_ms=counts.at_ms,
        kinds_paused=frozenset(one.name for one in seen.pauses if one.what == "kind"),
        crashing=tuple(
            one for one in seen.breakers if one.state is not BreakerState.CLOSED
        ),
    )


def _jobs(depths: Iterable[DepthRow], *states: JobState) -> int:
    return sum(row.jobs for row in depths if row.state in states)


def _running(seen: Seen) -> Iterable[Running]:
    kinds = {record.kind: record for record in seen.kinds}
    hosts = {run.id: run.host for run in seen.runs}
    for job in seen.leased:
        if job.started_at_ms is None:
            continue
        known = kinds.get(job.kind)
        yield Running(
            job=job,
            host=hosts.get(job.supervisor or "", "-"),
            limit_bytes=job.memory_bytes or (known.memory_bytes if known else None),
            limit_s=job.timeout_s or (known.timeout_s if known else None),
            began_ms=job.started_at_ms,
        )


def _pools(
    seen: Seen, counts: Counts, living: Sequence[Run], running: Sequence[Running]
) -> Iterable[PoolRow]:
    reports = {row.run_id: row.report for row in seen.reports}
    hosts: defaultdict[str, list[Host]] = defaultdict(list)
    for run in living:
        told = reports[run.id].pools if run.id in reports else {}
        for name, text in run.pools.items():
            pool = told.get(name)
            host = Host(
                run_id=run.id,
                size=_bound(text) if pool is None else pool.size,
                busy=0 if pool is None else pool.busy,
                most=_bound(text, most=True),
                why="" if pool is None else pool.why,
            )
            hosts[name].append(host)
    rates = _rates(seen.reports, seen.kinds, {run.id for run in living})
    paused = {one.name: one for one in seen.pauses if one.what == "pool"}
    names = {*hosts, *(row.pool for row in counts.waiting)}
    names |= {one.job.pool for one in running}
    for name in sorted(names):
        due = [row for row in counts.waiting if row.pool == name]
        of_pool = [row for row in counts.depths if row.pool == name]
        yield PoolRow(
            name=name,
            hosts=tuple(hosts[name]),
            running=tuple(one for one in running if one.job.pool == name),
            ends_per_s=rates[name],
            due=sum(row.jobs for row in due),
            blocked=sum(row.blocked for row in due),
            later=_jobs(of_pool, JobState.PENDING, JobState.WAITING),
            oldest_s=max((row.oldest_age_s for row in due), default=None),
            causes=tuple(_causes(counts, name)),
            pause=paused.get(name),
        )


def _bound(text: str, *, most: bool = False) -> int:
    """Return the least size of a pool, as written, or the most; 0: it is none."""
    least, _, highest = text.partition("..")
    bound = (highest or least) if most else least
    return int(bound) if bound.isdigit() else 0


def _rates(
    reports: Iterable[ReportRow], kinds: Iterable[KindRecord], living: set[str]
) -> Counter[str]:
    """Return how many attempts end a second, by the pool of their kinds."""
    pools = {record.kind: record.pool for record in kinds}
    found: Counter[str] = Counter()
    for row in reports:
        if row.run_id in living:
            for kind, one in row.report.kinds.items():
                if kind in pools:
                    found[pools[kind]] += one.ends_per_s  # type: ignore[assignment]
    return found


def _causes(counts: Counts, pool: str) -> Iterable[tuple[str, float]]:
    """Return what a pool's due jobs wait for, with their shares; the most first."""
    jobs: Counter[str] = Counter()
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for row in counts.causes:
        if row.pool == pool:
            jobs[row.cause] += row.job_s  # type: ignore[assignment]
            kinds[row.cause].add(row.kind)
    every = sum(jobs.values())
    for cause, some in jobs.most_common():
        if some / every >= _SHARE_OF_CAUSE:
            names = _quotas(counts.quotas, kinds[cause]) if cause in _OF_QUOTAS else ()
            yield " ".join((cause, *names)), some / every


def _quotas(rows: Iterable[QuotaRow], kinds: set[str]) -> list[str]:
    """Return the quotas for which most jobs wait, of those that some kinds need."""
    short = [row for row in rows if row.waiting and kinds & set(row.kinds)]
    short.sort(key=lambda row: -row.waiting)
    return [row.name for row in short[:_NAMES_MAX]]
