"""`jobpool audit`: who did what to jobs, from where, when and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import JobName, json_flag, store_flags
from jobpool.cli.jobs.selection import id_of
from jobpool.cli.output import encodable, print_json, print_rows
from jobpool.core.event_lines import iso_time
from jobpool.operations.trail.entries import Entry, entries, target_of
from jobpool.store.records.operating import AuditFilter
from jobpool.words.figures import ago, clock_time, counted
from jobpool.words.moments import since_ms
from jobpool.words.trail import changes_words, target_words

_MAYBE = "may include this job"
_COLUMNS = ("AT", "WHO", "FROM", "ACTION", "JOBS", "TARGET", "NOTE")


@click.command()
@click.option(
    "--since", metavar="TIME", help="Only since then: 2h, or an ISO 8601 time."
)
@click.option("--who", metavar="NAME", help="Only of users whose name has this in it.")
@click.option("--action", metavar="VERB", help="Only this: cancel, pause, refused, …")
@click.option(
    "--job", metavar="ID", type=JobName(), help="Only what was done to this job."
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=100,
    help="List at most this many; default 100.",
)
@store_flags
@json_flag
def audit(
    *,
    since: str | None,
    who: str | None,
    action: str | None,
    job: int | str | None,
    limit: int,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Show what people did to jobs, newest first: who, from where, when and why."""
    which = AuditFilter(
        since_ms=None if since is None else since_ms(since, now_ms()),
        who=who,
        action=action,
    )
    with opened(own_sources(store, config)) as found:
        job_id = None if job is None else id_of(found, job)
        listed = list(entries(found, which, job_id, limit))
    if as_json:
        for entry in listed:
            print_json(encodable(audit_object(entry)))
    elif listed:
        print_rows(
            _COLUMNS,
            [_cells(entry) for entry in listed],
            right=("JOBS",),
            spare=("FROM", "TARGET"),
        )
    else:
        click.echo("note: nothing of this is in the audit trail", err=True)


def audit_object(entry: Entry) -> dict[str, Any]:
    """Return an entry for ``--json``."""
    row = msgspec.structs.asdict(entry.row)
    del row["at_ms"]
    return {
        "at": iso_time(entry.row.at_ms),
        **row,
        "target": target_of(entry.row),
        "certain": entry.is_certain,
    }


def audit_lines(listed: Sequence[Entry], now_ms: int) -> Iterator[str]:
    """Describe each entry about one job in a line."""
    for entry in listed:
        row = entry.row
        parts = (
            f"{row.action} by {row.who}",
            ago(row.at_ms, now_ms),
            f"{counted(row.jobs, 'job')}{'' if entry.is_certain else f', {_MAYBE}'}",
            row.origin,
            changes_words(row),
            row.note,
        )
        yield "  ".join(filter(None, parts))


def _cells(entry: Entry) -> tuple[Any, ...]:
    row = entry.row
    maybe = "" if entry.is_certain else f"({_MAYBE})"
    target = "  ".join(
        filter(None, (target_words(target_of(row)), changes_words(row), maybe))
    )
    return (
        clock_time(row.at_ms),
        row.who,
        row.origin,
        row.action,
        row.jobs,
        target,
        row.note,
    )
