"""`jobpool migrate`: make the store, or bring its schema up to date."""

from __future__ import annotations

import click

from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import json_flag, store_flags
from jobpool.cli.output import print_json, print_line


@click.command()
@json_flag
@store_flags
def migrate(*, as_json: bool, store: str | None, config: str | None) -> None:
    """Make the store's tables, or bring them up to this version.

    Supervisors do this by themselves when they start; this command is for a role that
    may change tables when theirs may not.
    """
    with opened(own_sources(store, config), create=True) as found:
        version = found.describe()["schema_version"]
        if as_json:
            print_json({"store": found.url, "schema_version": int(version)})
        else:
            print_line(found.url, f"schema version {version}")
