"""Supervisors by host: what each runs, how its host fares, which is cheapest to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
from starlette.responses import Response

from jobpool.core.rules.run_report import PoolReport, ReportRow
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.plots import Columns, columns
from jobpool.dashboard.reading import Unknown
from jobpool.monitoring.glance.glance import Counts, Glance, Running, Seen, glance_of
from jobpool.monitoring.looking.cheapest import Cheapest, cheapest
from jobpool.operations.queue import Pause, Resume
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.runs import Run
from jobpool.words.figures import counted
from jobpool.words.hosts import host_words, store_words
from jobpool.words.pauses import pause_words


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A supervisor's part of a pool."""

    name: str
    size: str
    """As configured."""
    busy: int
    why: str
    """Why it has its size, or what holds its jobs; "": nothing is told."""
    running: tuple[Running, ...]
    columns: Columns


class SupervisorView(msgspec.Struct, frozen=True, kw_only=True):
    """A supervisor."""

    run: Run
    dead: str
    """Why it serves nobody; "": it does."""
    is_cheapest: bool
    pools: tuple[PoolView, ...]
    store: tuple[str, ...]
    reported_ms: int | None
    memory: str
    """Why its slots cannot be used at once; "": they can."""


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """A host with its supervisors."""

    name: str
    facts: tuple[str, ...]
    """How it fares, as the newest report has it."""
    supervisors: tuple[SupervisorView, ...]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows."""

    hosts: tuple[HostView, ...]
    alive: int
    versions: str
    """The versions of code that run at the same time; "": it is one."""
    cheapest: Cheapest | None
    pauses: tuple[tuple[PauseRow, str], ...]
    """What is paused, each with who did so, when and why."""
    pools: tuple[str, ...]
    """Those that are served and not paused."""
    is_paused: bool
    """All of the store is."""


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    seen = await asked.served.live.seen()
    return asked.page(
        "supervisors.html",
        view=seen if isinstance(seen, Unknown) else view_of(seen),
        actions={"pause": Pause, "resume": Resume},
    )


def view_of(seen: Seen) -> View:
    """Return what the page shows."""
    glance = glance_of(seen, Counts())
    living = [run for run in seen.runs if not seen.not_alive[run.id]]
    found = cheapest(living, seen.leased, seen.at_ms)
    names = sorted({run.host for run in seen.runs})
    return View(
        hosts=tuple(_host(name, seen, glance, found) for name in names),
        alive=len(living),
        versions=_versions(living),
        cheapest=found,
        pauses=tuple((one, pause_words(one, seen.at_ms)) for one in seen.pauses),
        pools=tuple(
            sorted(
                {name for run in seen.runs for name in run.pools}
                - {one.name for one in seen.pauses if one.what == "pool"}
            )
        ),
        is_paused=any(one.what == "store" for one in seen.pauses),
    )


def _versions(living: list[Run]) -> str:
    """Return the versions that run, of an application of which several do."""
    said = []
    for name in sorted({run.application or "" for run in living}):
        versions = Counter(
            run.app_version or "unknown" for run in living if run.application == name
        )
        if len(versions) > 1:
            parts = [
                f"{one} in {counted(count, 'supervisor')}"
                for one, count in sorted(versions.items())
            ]
            said.append(f"{name}: {', '.join(parts)}")
    return "; ".join(said)


def _host(name: str, seen: Seen, glance: Glance, found: Cheapest | None) -> HostView:
    runs = [run for run in seen.runs if run.host == name]
    reports = {row.run_id: row for row in seen.reports}
    told = [reports[run.id] for run in runs if run.id in reports]
    newest = max(told, key=lambda row: row.at_ms, default=None)
    facts = () if newest is None else host_words(newest.report.host)
    return HostView(
        name=name,
        facts=tuple(filter(None, facts)),
        supervisors=tuple(
            _supervisor(run, seen.not_alive[run.id], reports.get(run.id), glance, found)
            for run in runs
        ),
    )


def _supervisor(
    run: Run,
    dead: str,
    told: ReportRow | None,
    glance: Glance,
    found: Cheapest | None,
) -> SupervisorView:
    report = None if told is None else told.report
    pools = {} if report is None else report.pools
    memory = None if report is None else report.memory
    said = ""
    if memory is not None:
        said = f"{memory.usable} of {memory.slots} slots can be used at once: memory"
    return SupervisorView(
        run=run,
        dead=dead,
        is_cheapest=found is not None and found.run.id == run.id,
        pools=tuple(_pools(run, pools, glance)),
        store=() if report is None else tuple(filter(None, store_words(report.store))),
        reported_ms=None if told is None else told.at_ms,
        memory=said,
    )


def _pools(
    run: Run, told: Mapping[str, PoolReport], glance: Glance
) -> Iterator[PoolView]:
    for name, size in run.pools.items():
        report = told.get(name, PoolReport(size=0))
        running = tuple(
            one
            for one in glance.running
            if one.job.supervisor == run.id and one.job.pool == name
        )
        most = size.rpartition("..")[2]
        yield PoolView(
            name=name,
            size=size,
            busy=max(report.busy, len(running)),
            why=f"its jobs wait for {report.holds}" if report.holds else report.why,
            running=running,
            columns=columns(
                [one.filled for one in running],
                report.size,
                int(most) if most.isdigit() else report.size,
            ),
        )
