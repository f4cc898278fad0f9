"""`jobpool migrate`: create the store, or upgrade its schema."""

from __future__ import annotations

import click

from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import json_flag, store_flags
from jobpool.cli.output import print_json, print_line


@click.command()
@json_flag
@store_flags
def migrate(*, as_json: bool, store: str | None, config: str | None) -> None:
    """Create the store's tables, or upgrade them to this version.

    Supervisors do this by themselves when they start. Use this command when their
    database role may not change tables, with one that may.
    """
    with opened(own_sources(store, config), create=True) as found:
        version = found.describe()["schema_version"]
        if as_json:
            print_json({"store": found.url, "schema_version": int(version)})
        else:
            print_line(found.url, f"schema version {version}")
