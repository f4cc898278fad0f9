"""`jobpool schedules`: the list, and the commands about one of them."""

from __future__ import annotations

import click
from click.core import ParameterSource

from jobpool.cli.admin.schedules.changing import (
    backfill_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from jobpool.cli.admin.schedules.reading import next_times, show_schedule
from jobpool.cli.admin.schedules.records import COLUMNS, cells, schedule_object
from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import group_flags, json_flag, store_flags
from jobpool.cli.output import encodable, print_json, print_rows
from jobpool.operations.schedules import outlook
from jobpool.words.figures import counted

_SHOWN = 3


@click.group(invoke_without_command=True)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="List at most this many.",
)
@store_flags
@json_flag
@click.pass_context
def schedules(
    ctx: click.Context,
    /,
    *,
    limit: int,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """List schedules with their next and their last tick; or act on one of them."""
    if ctx.invoked_subcommand is not None:
        if ctx.get_parameter_source("limit") is not ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--limit is for the list of schedules; {ctx.invoked_subcommand!r} is "
                "about one of them"
            )
        group_flags(ctx, store=store, config=config, as_json=as_json)
        return
    with opened(own_sources(store, config)) as found:
        rows = found.schedules()
    now = now_ms()
    listed = [(row, outlook(row, now, _SHOWN)) for row in rows[:limit]]
    if as_json:
        for row, seen in listed:
            print_json(encodable(schedule_object(row, seen)))
    elif listed:
        print_rows(
            COLUMNS,
            [cells(row, seen, now) for row, seen in listed],
            right=("MISSED",),
            spare=("MISSED", "KIND", "WHEN", "LOCAL", "LAST"),
        )
    else:
        click.echo(
            "note: there are no schedules in the store: those that code declares get "
            "there when a supervisor starts, and `jobpool check` shows them before; "
            "see `jobpool manual schedules`",
            err=True,
        )
    if more := len(rows) - len(listed):
        click.echo(
            f"and {counted(more, 'more schedule')}; --limit shows more", err=True
        )


for _command in (
    show_schedule,
    next_times,
    run_schedule,
    pause_schedule,
    resume_schedule,
    backfill_schedule,
    remove_schedule,
):
    schedules.add_command(_command)
