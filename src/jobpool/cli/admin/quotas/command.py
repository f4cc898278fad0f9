"""`jobpool quotas`: the list, and the commands about one of them."""

from __future__ import annotations

import click

from jobpool.cli.admin.quotas.changing import reset_quota, set_quota
from jobpool.cli.admin.quotas.reading import show_quota
from jobpool.cli.admin.quotas.records import (
    COLUMNS,
    RIGHT,
    SPARE,
    cells,
    quota_object,
)
from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import group_flags, json_flag, store_flags
from jobpool.cli.output import encodable, print_json, print_rows
from jobpool.core.safe_text import one_line


class _Quotas(click.Group):
    """A group in which the name of a quota stands for `show` and the name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; one word that is none is a quota's name."""
        is_name = args[0] not in self.commands and not args[0].startswith("-")
        if is_name and (len(args) == 1 or args[1].startswith("-")):
            args = [show_quota.name or "", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Quotas,
    invoke_without_command=True,
    subcommand_metavar="[NAME | COMMAND [ARGS]...]",
)
@store_flags
@json_flag
@click.pass_context
def quotas(
    ctx: click.Context, /, *, store: str | None, config: str | None, as_json: bool
) -> None:
    """List quotas: who says their numbers, what is used, what waits and until when.

    `jobpool quotas NAME` shows one of them by bucket.
    """
    if ctx.invoked_subcommand is not None:
        group_flags(ctx, store=store, config=config, as_json=as_json)
        return
    with opened(own_sources(store, config)) as found:
        rows = found.quotas()
    now = now_ms()
    if as_json:
        for row in rows:
            print_json(encodable(quota_object(row)))
    elif rows:
        print_rows(COLUMNS, [cells(row, now) for row in rows], right=RIGHT, spare=SPARE)
        for row in rows:
            if row.differing:
                note = f"quota {row.name}: {row.differing}"
                click.echo(f"note: {one_line(note)}", err=True)
    else:
        click.echo(
            "note: no quota is in force: a supervisor brings those of code and "
            "configuration when it starts, and `jobpool check` shows them before; see "
            "`jobpool manual flow-control`",
            err=True,
        )


for _command in (show_quota, set_quota, reset_quota):
    quotas.add_command(_command)
