"""`jobpool audit`: who did what to jobs, from where, when and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import JobName, json_flag, store_flags
from jobpool.cli.jobs.selection import id_of
from jobpool.cli.jobs.times import since_ms
from jobpool.cli.output import (
    ago,
    clock_time,
    counted,
    encodable,
    print_json,
    print_rows,
)
from jobpool.core.event_lines import iso_time
from jobpool.core.units import show_duration
from jobpool.operations.trail.entries import Entry, entries, target_of
from jobpool.store.records.operating import AuditFilter, AuditRow

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
            _changes(row),
            row.note,
        )
        yield "  ".join(filter(None, parts))


def _cells(entry: Entry) -> tuple[Any, ...]:
    row = entry.row
    maybe = "" if entry.is_certain else f"({_MAYBE})"
    target = "  ".join(filter(None, (_words(target_of(row)), _changes(row), maybe)))
    return (
        clock_time(row.at_ms),
        row.who,
        row.origin,
        row.action,
        row.jobs,
        target,
        row.note,
    )


def _changes(row: AuditRow) -> str:
    """Return the paths of the arguments that were changed."""
    return f"changed {row.changed}" if row.changed else ""


def _words(target: Mapping[str, Any]) -> str:
    """Return a target as words: kind shop.pay  states dead  ids 1-500."""
    parts = []
    for name, value in target.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name.endswith("_ms") and is_number:
            parts.append(f"{name.removesuffix('_ms')} {iso_time(value)}")
        elif name.endswith("_s") and is_number:
            parts.append(f"{name.removesuffix('_s')} {show_duration(value)}")
        elif value is True:
            parts.append(name)
        elif isinstance(value, list):
            parts.append(f"{name} {', '.join(map(str, value))}")
        else:
            parts.append(f"{name} {value}")
    return "  ".join(parts)
