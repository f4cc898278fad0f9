"""`jobpool list`: jobs, newest first, or their counts by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import (
    FlowName,
    json_flag,
    selection_flags,
    store_flags,
    unredacted_flag,
)
from jobpool.cli.jobs.known_names import note_slips
from jobpool.cli.jobs.records import job_object
from jobpool.cli.jobs.selection import chosen, flow_id_of
from jobpool.cli.jobs.state_names import StateChoice
from jobpool.cli.output import encodable, print_json, print_rows, print_table
from jobpool.core.application.redaction import HIDDEN
from jobpool.core.jobs.job import Attempt, Job
from jobpool.operations.redaction import Redactor
from jobpool.operations.selection import matching
from jobpool.store.protocol import Store
from jobpool.store.records.reading import GroupRow
from jobpool.words.figures import ago, seconds, size
from jobpool.words.jobs.line import memory_bytes, news, ran_s
from jobpool.words.jobs.states import STATES

_GROUPS = ("kind", "state", "outcome", "error_class", "reason")


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
    type=StateChoice(STATES),
    help="Only jobs in this state; may be repeated.",
)
@selection_flags
@click.option("--key", help="Only jobs with this idempotency key (one per kind).")
@click.option("--flow", metavar="FLOW", type=FlowName(), help="Only this flow's jobs.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Show at most this many.",
)
@click.option(
    "--group-by",
    "group_by",
    metavar="FIELDS",
    callback=_group_names,
    help=f"Count by any of {', '.join(_GROUPS)}, such as kind,reason.",
)
@click.option(
    "--full", is_flag=True, help="With --json: include stacks, output and tracebacks."
)
@unredacted_flag
@store_flags
@json_flag
def list_jobs(
    *,
    states: tuple[str, ...],
    kind: str | None,
    pool: str | None,
    tenant: str | None,
    since: str | None,
    outcome: str | None,
    error_class: str | None,
    key: str | None,
    flow: int | str | None,
    limit: int,
    group_by: tuple[str, ...],
    full: bool,
    unredacted: bool,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    which = chosen(
        states=states,
        kind=kind,
        pool=pool,
        tenant=tenant,
        since=since,
        outcome=outcome,
        error_class=error_class,
        key=key,
    )
    sources = own_sources(store, config)
    with opened(sources) as found:
        if flow is not None:
            which = msgspec.structs.replace(which, flow=flow_id_of(found, flow))
        kinds = found.kinds()
        redactor = Redactor(found, kinds, is_off=unredacted)
        if group_by:
            rows = _redacted(found.groups(which), redactor, group_by)
            _print_groups(rows, group_by, limit=limit, as_json=as_json)
            return
        if as_json:
            maxima = {record.kind: record.max_attempts for record in kinds}
            for stored in matching(found, which, states, limit):
                maximum = maxima.get(stored.kind)
                redaction = redactor.of(stored)
                job = redaction.job(stored)
                attempts = redaction.attempts(_attempts(found, job))
                print_json(
                    encodable(
                        job_object(
                            job,
                            attempts,
                            max_attempts=maximum,
                            full=full,
                            now_ms=now_ms(),
                        )
                    )
                )
        else:
            listed = [
                redactor.of(job).job(job)
                for job in matching(found, which, states, limit)
            ]
            _print_rows(listed)
            if not listed:
                note_slips(found, sources, {"kind": kind, "pool": pool})


def _attempts(store: Store, job: Job) -> list[Attempt]:
    """Return the unsuccessful attempts; skips the query for a job never tried."""
    return store.attempts(job.id) if job.attempt else []


def _print_rows(listed: Sequence[Job]) -> None:
    """Print one line per job; a running one with its figures so far."""
    now = now_ms()
    print_rows(
        [name for name, _ in _COLUMNS],
        [[show(job, now) for _, show in _COLUMNS] for job in listed],
        right=("ID", "ATTEMPT", "RAN", "MEMORY"),
        spare=("POOL", "CREATED", "ATTEMPT", "MEMORY"),
    )


_COLUMNS: tuple[tuple[str, Callable[[Job, int], Any]], ...] = (
    ("ID", lambda job, _: job.id),
    ("STATE", lambda job, _: job.shown_state),
    ("KIND", lambda job, _: job.kind),
    ("POOL", lambda job, _: job.pool),
    ("ATTEMPT", lambda job, _: job.attempt),
    ("CREATED", lambda job, now: ago(job.created_at_ms, now)),
    ("RAN", lambda job, now: seconds(ran_s(job, now))),
    ("MEMORY", lambda job, _: size(memory_bytes(job))),
    ("REASON", news),
)


def _redacted(
    rows: Sequence[GroupRow], redactor: Redactor, names: Sequence[str]
) -> list[GroupRow]:
    """Hide the reasons of kinds that hide something: only a job tells which part."""
    shown = [
        msgspec.structs.replace(row, reason=HIDDEN)
        if row.reason is not None and redactor.may_hide(row.kind)
        else row
        for row in rows
    ]
    if "reason" in names and shown != [*rows]:
        click.echo(
            "note: kinds that redact arguments have their reasons counted as one; "
            "--unredacted tells them apart",
            err=True,
        )
    return shown


def _print_groups(
    rows: Sequence[GroupRow], names: Sequence[str], *, limit: int, as_json: bool
) -> None:
    counts: Counter[tuple[str | None, ...]] = Counter()
    for row in rows:
        counts[tuple(getattr(row, name) for name in names)] += row.jobs
    most = counts.most_common(limit)
    rest = len(counts) - len(most), counts.total() - sum(jobs for _, jobs in most)
    if as_json:
        for group, jobs in most:
            print_json(encodable(dict(zip(names, group, strict=True)) | {"jobs": jobs}))
    else:
        print_table(
            (*(name.upper() for name in names), "JOBS"),
            ((*group, jobs) for group, jobs in most),
            right=("JOBS",),
        )
    if rest[0]:
        click.echo(
            f"and {rest[0]:,} smaller groups with {rest[1]:,} jobs; --limit shows more",
            err=True,
        )
