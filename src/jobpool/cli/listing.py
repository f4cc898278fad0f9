"""`jobpool list`: jobs newest first, or counted by kind, state and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click

from jobpool.cli.flags import json_flag, selection_flags, store_flags
from jobpool.cli.opening import now_ms, opened, own_sources
from jobpool.cli.output import ago, encodable, print_json, print_table, seconds, size
from jobpool.cli.records import job_object
from jobpool.cli.selecting import STATES, chosen, matching
from jobpool.core.job import Attempt, Job
from jobpool.store.base import Store
from jobpool.store.records import Filter

_GROUPS = ("kind", "state", "reason")


def _group_names(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",")) if value else ()
    if wrong := [name for name in names if name not in _GROUPS]:
        raise click.BadParameter(
            f"{wrong[0]!r} is not one of {', '.join(_GROUPS)}; such as kind,reason"
        )
    return names


@click.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only jobs in this state; may be repeated.",
)
@selection_flags
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="At most so many.",
)
@click.option(
    "--group-by",
    "group_by",
    metavar="FIELDS",
    callback=_group_names,
    help="Count by kind, state, reason: such as kind,reason.",
)
@click.option("--full", is_flag=True, help="With --json: stacks, output, tracebacks.")
@store_flags
@json_flag
def list_jobs(
    *,
    states: tuple[str, ...],
    kind: str | None,
    pool: str | None,
    tenant: str | None,
    since: str | None,
    limit: int,
    group_by: tuple[str, ...],
    full: bool,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    which = chosen(states=states, kind=kind, pool=pool, tenant=tenant, since=since)
    with opened(own_sources(store, config)) as found:
        if group_by:
            _print_groups(found, which, group_by, limit=limit, as_json=as_json)
        elif as_json:
            maxima = {record.kind: record.max_attempts for record in found.kinds()}
            for job in matching(found, which, states, limit):
                maximum = maxima.get(job.kind)
                attempts = _attempts(found, job)
                print_json(
                    encodable(
                        job_object(job, attempts, max_attempts=maximum, full=full)
                    )
                )
        else:
            _print_rows(matching(found, which, states, limit))


def _attempts(store: Store, job: Job) -> list[Attempt]:
    """Return the unsuccessful attempts; a job never tried needs no look."""
    return store.attempts(job.id) if job.attempt else []


def _print_rows(jobs: Iterator[Job]) -> None:
    now = now_ms()
    print_table(
        ("ID", "STATE", "KIND", "POOL", "TRY", "CREATED", "RAN", "PEAK", "REASON"),
        (
            (
                job.id,
                job.shown_state,
                job.kind,
                job.pool,
                job.attempt,
                ago(job.created_at_ms, now),
                seconds(job.duration_s),
                size(job.peak_rss_bytes),
                job.reason or job.error_class or "",
            )
            for job in jobs
        ),
        right=("ID", "TRY", "RAN", "PEAK"),
    )


def _print_groups(
    store: Store, which: Filter, names: Sequence[str], *, limit: int, as_json: bool
) -> None:
    counts: Counter[tuple[str | None, ...]] = Counter()
    for row in store.groups(which):
        counts[tuple(getattr(row, name) for name in names)] += row.jobs
    most = counts.most_common(limit)
    if as_json:
        for group, jobs in most:
            print_json(encodable(dict(zip(names, group, strict=True)) | {"jobs": jobs}))
    else:
        print_table(
            (*(name.upper() for name in names), "JOBS"),
            ((*group, jobs) for group, jobs in most),
            right=("JOBS",),
        )
