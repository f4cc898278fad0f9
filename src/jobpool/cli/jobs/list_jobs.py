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
from jobpool.cli.jobs.records import decoded, job_object, running_s
from jobpool.cli.jobs.selection import chosen, flow_id_of
from jobpool.cli.jobs.state_names import STATES, StateChoice
from jobpool.cli.output import (
    ago,
    encodable,
    print_json,
    print_rows,
    print_table,
    seconds,
    size,
)
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.safe_text import one_line
from jobpool.operations.redaction import Redactor
from jobpool.operations.selection import matching
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter

_PROGRESS_MAX = 24
"""Characters of a handler's progress shown in its job's line."""
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
        states=states, kind=kind, pool=pool, tenant=tenant, since=since, key=key
    )
    sources = own_sources(store, config)
    with opened(sources) as found:
        if flow is not None:
            which = msgspec.structs.replace(which, flow=flow_id_of(found, flow))
        if group_by:
            _print_groups(found, which, group_by, limit=limit, as_json=as_json)
            return
        kinds = found.kinds()
        redactor = Redactor(found, kinds, is_off=unredacted)
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


def _is_running(job: Job) -> bool:
    return job.state is JobState.LEASED


def _ran(job: Job, now: int) -> str | None:
    """Show how long its last attempt ran, or has been running."""
    if _is_running(job):
        return seconds(running_s(job, now))
    return seconds(job.duration_s)


def _memory(job: Job, _now: int) -> str | None:
    return size(job.rss_bytes if _is_running(job) else job.peak_rss_bytes)


def _progress(job: Job) -> str:
    """Show what the handler reports; a number from 0 to 1 as a percentage."""
    if job.progress is None:
        return ""
    value = decoded(job.progress)
    if isinstance(value, float) and 0 <= value <= 1:
        return f"progress {value:.0%}"
    return f"progress {one_line(msgspec.json.encode(value).decode(), _PROGRESS_MAX)}"


def _reason(job: Job, now: int) -> str:
    """Return when it runs next, then the reason for its state."""
    reason = job.reason or job.error_class or ""
    if job.replaced_by is not None:
        return "; ".join(filter(None, (f"replaced by job {job.replaced_by}", reason)))
    if _is_running(job):
        before = f"before: {reason}" if reason else ""
        return "; ".join(filter(None, (_progress(job), before)))
    if job.state is JobState.PENDING:
        due = ago(job.run_at_ms, now) if job.run_at_ms > now else "as soon as it can"
        return "; ".join(filter(None, (f"{'again ' * bool(job.attempt)}{due}", reason)))
    return reason


_COLUMNS: tuple[tuple[str, Callable[[Job, int], Any]], ...] = (
    ("ID", lambda job, _: job.id),
    ("STATE", lambda job, _: job.shown_state),
    ("KIND", lambda job, _: job.kind),
    ("POOL", lambda job, _: job.pool),
    ("ATTEMPT", lambda job, _: job.attempt),
    ("CREATED", lambda job, now: ago(job.created_at_ms, now)),
    ("RAN", _ran),
    ("MEMORY", _memory),
    ("REASON", _reason),
)


def _print_groups(
    store: Store, which: Filter, names: Sequence[str], *, limit: int, as_json: bool
) -> None:
    counts: Counter[tuple[str | None, ...]] = Counter()
    for row in store.groups(which):
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
