"""`jobpool tenants`: what each tenant may use, and what it does use."""

from __future__ import annotations

import click

from jobpool.cli.admin.quotas.records import (
    TENANT_COLUMNS,
    TENANT_RIGHT,
    tenant_cells,
    tenant_object,
)
from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import (
    group_flags,
    json_flag,
    note_flag,
    numbers_flags,
    store_flags,
)
from jobpool.cli.jobs.acting import operating
from jobpool.cli.output import encodable, print_json, print_line, print_rows
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.quotas.rate import parse_rate
from jobpool.operations.quotas import RemoveTenant, SetTenant
from jobpool.words.quotas import numbers_words


@click.group(invoke_without_command=True)
@store_flags
@json_flag
@click.pass_context
def tenants(
    ctx: click.Context, /, *, store: str | None, config: str | None, as_json: bool
) -> None:
    """List the tenants that have rules of their own; or change one of these.

    The rule of `*` is for each tenant that has none of its own.
    """
    if ctx.invoked_subcommand is not None:
        group_flags(ctx, store=store, config=config, as_json=as_json)
        return
    with opened(own_sources(store, config)) as found:
        rows = found.tenants()
    now = now_ms()
    if as_json:
        for row in rows:
            print_json(encodable(tenant_object(row)))
    elif rows:
        print_rows(
            TENANT_COLUMNS,
            [tenant_cells(row, now) for row in rows],
            right=TENANT_RIGHT,
            spare=("BURST", "FROM", "RATE"),
        )
    else:
        click.echo(
            "note: no tenant has a rule in force; those of [tenants] in the "
            "configuration are once a supervisor runs, and `jobpool tenants set` makes "
            "others; see `jobpool manual flow-control`",
            err=True,
        )


@tenants.command("set")
@click.argument("name")
@numbers_flags
@note_flag
@store_flags
@json_flag
def set_tenant(
    *,
    name: str,
    concurrency: int | None,
    rate: str | None,
    burst: int | None,
    note: str | None,
    store: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Give a tenant a rule of its own.

    It holds on all hosts within 2 s, and takes the place of what was set for it before.
    What is not named is as `*` has it. The tenant `*` is each that has no rule.
    """
    if concurrency is None and rate is None and burst is None:
        raise click.UsageError(
            "say what it may use: --concurrency 10, --rate 5/s or --burst 10"
        )
    tenant = Tenant(
        name=name,
        concurrency=concurrency,
        rate=None if rate is None else parse_rate(rate, "--rate"),
        burst=burst,
    )
    with opened(own_sources(store, config)) as found:
        action = SetTenant(tenant=tenant, note=note)
        changed = operating(found, action).is_made
    if as_json:
        print_json({**action.target(), "set": True, "changed": changed})
    else:
        print_line(
            f"tenant {name} set: {numbers_words(tenant)}",
            "" if changed else "(no change)",
        )


@tenants.command("remove")
@click.argument("name")
@note_flag
@store_flags
@json_flag
def remove_tenant(
    *, name: str, note: str | None, store: str | None, config: str | None, as_json: bool
) -> None:
    """Undo `tenants set` for a tenant.

    The configuration's rule is in force again, if it has one.
    """
    with opened(own_sources(store, config)) as found:
        done = operating(found, RemoveTenant(tenant=name, note=note))
    if as_json:
        print_json({"tenant": name, "removed": True, "changed": done.is_made})
    else:
        print_line(f"tenant {name} removed", "" if done.is_made else "(no change)")
