"""`jobpool pause` and `resume`: stop and restart leasing of a pool, a kind or all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.known_names import nobodys
from jobpool.cli.output import print_json, print_line
from jobpool.core.application.handler_spec import check_kind, check_pool
from jobpool.core.units import duration_s
from jobpool.errors import ConfigError
from jobpool.operations.queue import Pause, Resume

C = TypeVar("C", bound=Callable[..., Any])


def _which(command: C) -> C:
    for option in (
        click.option(
            "--force", is_flag=True, help="Accept a name that is not in use yet."
        ),
        click.option(
            "--all", "whole_store", is_flag=True, help="The whole store, at once."
        ),
        json_flag,
        store_flags,
        note_flag,
        click.option(
            "--pool", "pools", multiple=True, metavar="NAME", help="This pool."
        ),
        click.option(
            "--kind", "kinds", multiple=True, metavar="KIND", help="This kind."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "--for", "duration", metavar="TIME", help="It ends by itself: 10m. Default: never."
)
@_which
def pause(*, duration: str | None, **given: Any) -> None:
    """Stop starting jobs of a pool, of a kind, or all; running ones go on."""
    for_s = None if duration is None else duration_s(duration, "--for")
    if for_s == 0:
        raise click.UsageError("--for must be longer than 0, such as 10m")
    _switch(partial(Pause, for_s=for_s), "paused", **given)


@click.command()
@_which
def resume(**given: Any) -> None:
    """Start jobs again of a paused pool, or of a paused or crashing kind.

    --all undoes `pause --all`, and the pause that `restored` makes; pools and kinds
    that were paused by themselves stay so.
    """
    _switch(Resume, "resumed", **given)


def _switch(
    act: Callable[..., Pause | Resume],
    past: str,
    *,
    pools: tuple[str, ...],
    kinds: tuple[str, ...],
    whole_store: bool,
    store: str | None,
    config: str | None,
    force: bool,
    note: str | None,
    as_json: bool,
) -> None:
    if not pools and not kinds and not whole_store:
        raise click.UsageError(
            "name a pool or a kind: --pool io, or --kind shop.thumbnail; or say --all"
        )
    targets: list[dict[str, Any]] = [{"pool": check_pool(name)} for name in pools]
    targets += [{"kind": check_kind(name)} for name in kinds]
    targets += [{"whole_store": True}] if whole_store else []
    sources = own_sources(store, config)
    with opened(sources) as found:
        if not force:
            for slip in nobodys(found, sources, pools=pools, kinds=kinds):
                end = "" if slip.endswith("?") else "."
                raise ConfigError(
                    f"{slip}{end} Nothing was changed; add --force for a name that "
                    "is not in use yet"
                )
        for target in targets:
            changed = operating(found, act(**target, note=note)).is_made
            if as_json:
                print_json({**target, past: True, "changed": changed})
            else:
                ((what, name),) = target.items()
                shown = "the whole store" if name is True else f"{what} {name}"
                print_line(f"{shown} {past}", "" if changed else "(no change)")
