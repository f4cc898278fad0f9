"""`jobpool migrate`: create the store, or upgrade its schema."""

from __future__ import annotations

import click
import msgspec

from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import json_flag, store_flags
from jobpool.cli.output import print_json, print_line, print_table
from jobpool.cli.terminal.lasting import lasting
from jobpool.core.config.load import client_settings
from jobpool.store.statements.migration import MigrationPlan
from jobpool.words.figures import seconds, size


@click.command()
@click.option(
    "--plan",
    "shows_plan",
    is_flag=True,
    help="Show what would be done: locks, sizes, a rough time. Changes nothing.",
)
@click.option(
    "--sql",
    "shows_sql",
    is_flag=True,
    help="Print what would be run, for the database's own shell. Changes nothing.",
)
@json_flag
@store_flags
def migrate(
    *,
    shows_plan: bool,
    shows_sql: bool,
    as_json: bool,
    store: str | None,
    config: str | None,
) -> None:
    """Create the store's tables, or upgrade them to this version.

    What runs on the store goes on meanwhile. Supervisors and clients do this by
    themselves only with SQLite, and with a PostgreSQL schema that does not exist yet.
    If it is interrupted, run it again.
    """
    from jobpool.store import opening  # noqa: PLC0415 - not for --help

    sources = own_sources(store, config)
    url = client_settings(sources).store
    if shows_plan or shows_sql:
        plan = opening.migration_plan(url)
        if shows_sql:
            click.echo(plan.sql, nl=False)
        elif as_json:
            shown = msgspec.to_builtins(plan)
            del shown["sql"]
            print_json(shown)
        else:
            _print(plan)
        return
    with lasting("migrate"):
        opening.migrate(url, lambda line: click.echo(line, err=True))
    with opened(sources) as found:
        version = found.describe()["schema_version"]
        if as_json:
            print_json({"store": found.url, "schema_version": int(version)})
        else:
            print_line(found.url, f"schema version {version}")


def _print(plan: MigrationPlan) -> None:
    newest = plan.newest_version
    if not plan.parts:
        print_line(plan.url, f"schema version {plan.schema_version}: nothing to do")
        return
    print_line(plan.url, f"schema version {plan.schema_version}, would be {newest}")
    print_table(
        ("STEP", "WHAT", "TABLES", "ROWS", "SIZE", "ABOUT", "LOCK", "WAITS FOR IT"),
        [
            (
                part.version,
                f"{part.what} {part.name or ''}".rstrip(),
                " ".join(part.tables),
                f"{part.rows:,}",
                size(part.size_bytes),
                seconds(part.about_s),
                part.lock,
                part.waits,
            )
            for part in plan.parts
        ],
        right=("STEP", "ROWS", "SIZE", "ABOUT"),
    )
