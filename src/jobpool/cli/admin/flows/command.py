"""`jobpool flows`: the list, and the commands about one of them."""

from __future__ import annotations

import click
from click.core import ParameterSource

from jobpool.cli.admin.flows.changing import (
    approve,
    cancel_flow,
    pause_flow,
    resume_flow,
    retry_flow,
)
from jobpool.cli.admin.flows.reading import show_flow
from jobpool.cli.admin.flows.records import COLUMNS, cells, flow_object
from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import group_flags, json_flag, store_flags
from jobpool.cli.output import encodable, print_json, print_rows
from jobpool.core.jobs.flow import FlowState
from jobpool.store.records.flows import FlowFilter

_UNSEEN = FlowState.BUILDING
"""Nobody is shown a flow in this state."""
_OWN = ("states", "name", "key", "tenant", "limit")
"""Options of the list alone."""


@click.group(invoke_without_command=True)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([one.value for one in FlowState if one is not _UNSEEN]),
    help="Only flows in this state; may be repeated.",
)
@click.option("--name", help="Only flows of this name.")
@click.option("--key", help="Only flows with this key (one per name).")
@click.option("--tenant", metavar="NAME", help="Only this tenant's flows.")
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
def flows(
    ctx: click.Context,
    /,
    *,
    states: tuple[str, ...],
    name: str | None,
    key: str | None,
    tenant: str | None,
    limit: int,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """List flows, newest first; or act on one of them."""
    if ctx.invoked_subcommand is not None:
        _check_own(ctx)
        group_flags(ctx, store=store, config=config, as_json=as_json)
        return
    which = FlowFilter(
        states=tuple(map(FlowState, states)) or None, name=name, key=key, tenant=tenant
    )
    with opened(own_sources(store, config)) as found:
        listed = found.flows(which, limit)
    now = now_ms()
    if as_json:
        for row in listed:
            print_json(encodable(flow_object(row)))
    elif listed:
        print_rows(
            COLUMNS,
            [cells(row, now) for row in listed],
            right=("ID", "TOOK"),
            spare=("TENANT", "CREATED", "TOOK"),
        )
    else:
        click.echo("note: there is no such flow", err=True)


def _check_own(ctx: click.Context) -> None:
    """Refuse what would be ignored.

    Raises:
        UsageError: an option of the list was given with the name of a command.
    """
    for option in _OWN:
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            raise click.UsageError(
                f"--{option.removesuffix('s')} is for the list of flows; "
                f"{ctx.invoked_subcommand!r} is about one of them"
            )


for _command in (
    show_flow,
    pause_flow,
    resume_flow,
    cancel_flow,
    retry_flow,
    approve,
):
    flows.add_command(_command)
