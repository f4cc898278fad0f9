"""`jobpool status`: supervisors, pools, waiting jobs, figures by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import click
import msgspec

from jobpool.cli.context import opened, own_sources
from jobpool.cli.diagnose import bottlenecks
from jobpool.cli.diagnose import quotas as quotas_of
from jobpool.cli.diagnose import schedules as schedules_of
from jobpool.cli.diagnose.incidents import print_open
from jobpool.cli.diagnose.usage import KindUsage, print_figures, print_usage, usage_of
from jobpool.cli.flags import json_flag, store_flags
from jobpool.cli.output import (
    encodable,
    heading,
    print_json,
    print_line,
    print_rows,
    print_table,
)
from jobpool.cli.terminal.again import again
from jobpool.core.formats import feature_of
from jobpool.core.jobs.job import Job, JobState
from jobpool.core.rules.circuit_breaker import BreakerState, Saved
from jobpool.core.rules.run_report import ReportRow
from jobpool.core.units import duration_s
from jobpool.monitoring.alerts.messages import facts_of
from jobpool.monitoring.looking.cheapest import Cheapest, cheapest
from jobpool.monitoring.looking.presence import why_silent
from jobpool.sandbox.system.platform import IS_LINUX
from jobpool.store.protocol import Store
from jobpool.store.records.alerts import Incident
from jobpool.store.records.jobs import MisfitRow, SuspectRow
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import FullRow, QuotaRow
from jobpool.store.records.reading import FigureRow, StatRow, WaitingRow
from jobpool.store.records.runs import Formats, Run
from jobpool.store.records.schedules import ScheduleRow
from jobpool.words.figures import ago, counted, seconds
from jobpool.words.jobs.states import RETRYABLE
from jobpool.words.pauses import pause_words

WHY_S = 3600.0
_LEASED_MAX = 10_000
_INCIDENTS_MAX = 20
_EVERY, _EVERY_MIN_S = "2s", 0.1
_BLOCKED = "blocked"
"""Runnable, but for a quota."""
_SHOWN_STATES = (
    *(JobState.PENDING, JobState.WAITING, JobState.RUNNABLE, _BLOCKED),
    *(JobState.LEASED, JobState.SUCCEEDED, JobState.DEAD, JobState.QUARANTINED),
    JobState.CANCELED,
)
_ONLY_IF_ANY = {JobState.WAITING.value, _BLOCKED}


class _Status(msgspec.Struct, frozen=True):
    """Everything that the command reads, at one moment."""

    url: str
    now_ms: int
    """The store's clock: this host's may be wrong."""
    runs: list[Run]
    formats: Formats
    not_alive: Mapping[str, str]
    """By run: why its supervisor serves nobody; "": it does."""
    stats: list[StatRow]
    waiting: list[WaitingRow]
    full: list[FullRow]
    pauses: list[PauseRow]
    schedules: list[ScheduleRow]
    quotas: list[QuotaRow]
    suspects: list[SuspectRow]
    misfits: list[MisfitRow]
    breakers: list[Saved]
    incidents: list[Incident]
    reports: list[ReportRow]
    figures: list[FigureRow]
    usage: list[KindUsage]
    leased: list[Job]
    """What runs or is about to."""


@click.command()
@click.option(
    "--figures",
    is_flag=True,
    help="Show each kind's observed memory and time beside its limits.",
)
@click.option(
    "--signals",
    is_flag=True,
    help="Show the signals of each bottleneck: hosts, store, how kinds end.",
)
@click.option(
    "--why",
    is_flag=True,
    help="Show what due jobs have waited for in the last hour, by kind.",
)
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", metavar="TIME", help="With --watch: how often. Default: 2s.")
@store_flags
@json_flag
def status(
    *,
    figures: bool,
    signals: bool,
    why: bool,
    watch: bool,
    every: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Show supervisors, pools and waiting jobs."""
    if every is not None and not watch:
        raise click.UsageError("--every says how often --watch shows it: add --watch")
    with opened(own_sources(store, config)) as found:
        show = partial(
            _show, found, figures=figures, signals=signals, why=why, as_json=as_json
        )
        if watch:
            every_s = max(_EVERY_MIN_S, duration_s(every or _EVERY, "--every"))
            again(show, every_s, paint=not as_json)
        else:
            show()


def _show(
    store: Store, *, figures: bool, signals: bool, why: bool, as_json: bool
) -> None:
    """Read and print it once."""
    seen = _read_status(store, figures=figures)
    waits = store.waits(WHY_S) if why else []
    if as_json:
        whole = _object(seen, figures=figures)
        if why:
            whole["waits"] = [row._asdict() for row in waits]
        print_json(encodable(whole))
    else:
        _print(seen, figures=figures)
        if signals:
            bottlenecks.print_signals(seen.reports, seen.now_ms)
        if why:
            bottlenecks.print_waits(waits)


def _read_status(store: Store, *, figures: bool) -> _Status:
    runs, root, now = store.open_runs(), store.run_root, store.clock_ms()
    return _Status(
        url=store.url,
        now_ms=now,
        runs=runs,
        formats=store.formats(),
        not_alive={run.id: why_silent(root, run, now) for run in runs},
        stats=store.stats(),
        waiting=store.waiting(),
        full=store.full(),
        pauses=store.pauses(),
        schedules=store.schedules(),
        quotas=store.quotas(),
        suspects=store.suspects(),
        misfits=store.misfits(),
        breakers=store.breakers(),
        incidents=store.incidents(limit=_INCIDENTS_MAX),
        reports=store.run_reports(),
        figures=store.figures() if figures else [],
        usage=usage_of(store.sketches()) if figures else [],
        leased=store.leased(_LEASED_MAX) if len(runs) > 1 else [],
    )


def _object(seen: _Status, *, figures: bool) -> dict[str, Any]:
    now = seen.now_ms
    whole: dict[str, Any] = {
        "store": seen.url,
        "supervisors": [
            {
                "id": run.id,
                "host": run.host,
                "pid": run.pid,
                "version": run.version,
                "application": run.application,
                "app_version": run.app_version,
                "outdated": run.format < seen.formats.least,
                "pools": dict(run.pools),
                "alive": not seen.not_alive[run.id],
                "heartbeat_age_s": (now - run.heartbeat_at_ms) / 1000,
                "up_s": (now - run.started_at_ms) / 1000,
            }
            for run in seen.runs
        ],
        "held_back": [
            {
                "feature": feature_of(seen.formats.wanted),
                "by": run.id,
                "version": run.version,
                "host": run.host,
                "pid": run.pid,
            }
            for run in seen.formats.held_back_by
        ],
        "cheapest_to_end": found.run.id if (found := _cheapest(seen, now)) else None,
        "pools": {pool: dict(states) for pool, states in _by_pool(seen).items()},
        "waiting": [msgspec.to_builtins(row) for row in seen.waiting],
        "full": [msgspec.to_builtins(row) for row in seen.full],
        "unknown_kinds": [
            msgspec.to_builtins(row) for row in seen.waiting if not row.known
        ],
        "unserved_pools": [
            {"pool": pool, "jobs": jobs, "oldest_age_s": oldest_s}
            for pool, jobs, oldest_s in _unserved(seen)
        ],
        "oldest_runnable_age_s": max(
            (row.oldest_age_s for row in seen.waiting), default=None
        ),
        "paused": [msgspec.to_builtins(row) for row in seen.pauses],
        "schedules": schedules_of.summary(seen.schedules, now),
        "quotas": quotas_of.summary(seen.quotas),
        "suspects": [msgspec.to_builtins(row) for row in seen.suspects],
        "misfits": [msgspec.to_builtins(row) for row in seen.misfits],
        "reports": bottlenecks.summary(seen.reports, now),
        "incidents": [
            {"id": row.id, "summary": row.summary, **facts_of(row)}
            for row in seen.incidents
        ],
        "crashing_kinds": [msgspec.to_builtins(row) for row in seen.breakers],
    }
    if figures:
        whole["figures"] = [msgspec.to_builtins(row) for row in seen.figures]
        whole["usage"] = [row.as_object() for row in seen.usage]
    return whole


def _unserved(seen: _Status) -> Iterator[tuple[str, int, float]]:
    """Yield pools in which jobs wait and that no living supervisor serves.

    Each with how many wait, and for how long the oldest has.
    """
    living = [run for run in seen.runs if not seen.not_alive[run.id]]
    served = {pool for run in living for pool in run.pools}
    for pool in sorted({row.pool for row in seen.waiting} - served):
        rows = [row for row in seen.waiting if row.pool == pool]
        yield pool, sum(r.jobs for r in rows), max(r.oldest_age_s for r in rows)


def _by_pool(seen: _Status) -> dict[str, dict[str, int]]:
    """Count jobs by pool and state; includes served pools without jobs.

    What waits for a quota is counted by itself, and is not among the runnable ones.
    """
    empty = dict.fromkeys(_SHOWN_STATES, 0)
    pools: dict[str, dict[str, int]] = defaultdict(empty.copy)
    for run in seen.runs:
        for name in run.pools:
            pools[name] = empty.copy()
    for row in seen.stats:
        state = "pending" if row.state == RETRYABLE else row.state
        counts = pools[row.pool]
        counts[state] = counts.get(state, 0) + row.jobs  # it may be one written by hand
        if row.blocked:
            counts[state] -= row.blocked
            counts[_BLOCKED] += row.blocked
    return dict(sorted(pools.items()))


def _print(seen: _Status, *, figures: bool) -> None:
    now = seen.now_ms
    print_line(f"store  {seen.url}")
    for one in seen.pauses:
        if not one.name:
            what = "PAUSED: nothing starts"
            print_line(what, pause_words(one, now), "jobpool resume --all")
    if not seen.runs:
        start = "jobpool --pools cpu=4,io=16" if IS_LINUX else "jobpool dev"
        print_line(f"no supervisor is running; start one: {start}")
    for run in seen.runs:
        sizes = " ".join(f"{name}={text}" for name, text in run.pools.items())
        print_line(
            f"supervisor {run.pid} on {run.host}",
            sizes,
            _runs(run),
            f"heartbeat {ago(run.heartbeat_at_ms, now)}",
            f"up {seconds((now - run.started_at_ms) / 1000)}",
            "" if run.is_isolated else "ISOLATES NOTHING: jobpool dev",
            "OUTDATED: takes no more jobs" if run.format < seen.formats.least else "",
            f"SILENT: {why}" if (why := seen.not_alive[run.id]) else "",
        )
    _print_cheapest(seen, now)
    for run in seen.formats.held_back_by:
        print_line(
            f"{feature_of(seen.formats.wanted)} wait for {run.label}",
            "upgrade or stop it",
        )
    print_open(seen.incidents, now)
    pools = _by_pool(seen)
    if pools:
        heading("POOLS")
        _print_pools(seen, pools)
    ranged = {
        (run.id, name)
        for run in seen.runs
        for name, text in run.pools.items()
        if ".." in text
    }
    bottlenecks.print_sizes(seen.reports, ranged)
    bottlenecks.print_memory(seen.reports)
    bottlenecks.print_own_imports(seen.reports)
    _print_unserved(seen)
    _print_waiting(seen)
    _print_full(seen)
    if pauses := [one for one in seen.pauses if one.name]:
        heading("PAUSED")
        for one in pauses:
            what = f"{one.what} {one.name}"
            print_line(what, pause_words(one, now), f"jobpool resume --{what}")
    blocked = sum(counts[_BLOCKED] for counts in pools.values())
    quotas_of.print_summary(seen.quotas, blocked)
    schedules_of.print_summary(seen.schedules, now)
    _print_suspects_and_breakers(seen)
    if figures:
        print_figures(seen.figures)
        print_usage(seen.usage)


def _cheapest(seen: _Status, now: int) -> Cheapest | None:
    living = [run for run in seen.runs if not seen.not_alive[run.id]]
    return cheapest(living, seen.leased, now)


def _print_cheapest(seen: _Status, now: int) -> None:
    if (found := _cheapest(seen, now)) is not None:
        run, running, work_s = found
        print_line(
            f"cheapest to end: supervisor {run.pid} on {run.host}",
            f"{running} running, {seconds(work_s)} of work" if running else "idle",
        )


def _runs(run: Run) -> str:
    """Return what a supervisor runs; "": it is older than this figure."""
    if not run.application:
        return ""
    return " ".join(filter(None, ("runs", run.application, run.app_version)))


def _print_suspects_and_breakers(seen: _Status) -> None:
    """Show jobs that run alone and kinds that are held, each with its remedy."""
    if seen.suspects:
        heading("SUSPECTS (ran when a supervisor or host died; they run one at a time)")
        for row in seen.suspects:
            print_line(f"job {row.id}", row.kind, row.state, f"jobpool show {row.id}")
    if seen.misfits:
        heading("MISFITS (their arguments fit no live supervisor's handler yet)")
        for kind in seen.misfits:
            print_line(
                f"kind {kind.kind}",
                counted(kind.jobs, "job"),
                f"the first {ago(kind.since_ms, seen.now_ms)}",
                "deploy the application version that they are for",
            )
    held = [one for one in seen.breakers if one.state is not BreakerState.CLOSED]
    if held:
        heading("CRASHING KINDS (their jobs wait and are tried one at a time)")
        for one in held:
            print_line(
                f"kind {one.kind}",
                f"{one.state}: {one.crashes} different jobs crashed in a row",
                f"next try in {seconds(one.wait_s)}",
                f"jobpool resume --kind {one.kind}",
            )


def _print_pools(seen: _Status, pools: dict[str, dict[str, int]]) -> None:
    oldest: dict[str, float] = {}
    for row in seen.waiting:
        oldest[row.pool] = max(oldest.get(row.pool, 0.0), row.oldest_age_s)
    shown = [
        state
        for state in _SHOWN_STATES
        if state not in _ONLY_IF_ANY or any(counts[state] for counts in pools.values())
    ]
    numbers = tuple(state.upper() for state in shown)
    print_rows(
        ("POOL", *numbers, "OLDEST"),
        [
            (
                name,
                *(counts[state] for state in shown),
                seconds(oldest.get(name)),
            )
            for name, counts in pools.items()
        ],
        right=(*numbers, "OLDEST"),
        spare=("CANCELED", "SUCCEEDED"),
    )


def _print_unserved(seen: _Status) -> None:
    unserved = list(_unserved(seen))
    if not unserved or not seen.runs:
        return  # that no supervisor runs at all is printed already
    heading("POOLS THAT NO SUPERVISOR SERVES")
    for pool, jobs, oldest_s in unserved:
        print_line(
            f"pool {pool}",
            f"{counted(jobs, 'job')} waiting, the oldest for {seconds(oldest_s)}",
            f"jobpool --pools {pool}=N",
        )


def _print_full(seen: _Status) -> None:
    """Show what has no room for more jobs, by this configuration."""
    if not seen.full:
        return
    heading("FULL (more jobs are refused, or stored for later)")
    for row in seen.full:
        depth = "" if row.depth_max is None else f" of at most {row.depth_max:,}"
        age = "" if row.age_max_s is None else f" of at most {seconds(row.age_max_s)}"
        print_line(
            row.what,
            f"{counted(row.depth, 'job')}{depth}",
            "" if row.age_s is None else f"the oldest for {seconds(row.age_s)}{age}",
            f"room in about {seconds(row.retry_after_s)}",
        )


def _print_waiting(seen: _Status) -> None:
    unknown = [row for row in seen.waiting if not row.known]
    if not unknown:
        return
    heading("KINDS THAT NO SUPERVISOR KNOWS")
    print_table(
        ("KIND", "POOL", "JOBS", "OLDEST"),
        ((row.kind, row.pool, row.jobs, seconds(row.oldest_age_s)) for row in unknown),
        right=("JOBS", "OLDEST"),
    )
    print_line("They wait until an application with these kinds is started.")
