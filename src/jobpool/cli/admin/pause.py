"""`jobpool pause` and `resume`: stop and restart leasing of what is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import click

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import Name, force_flag, json_flag, note_flag, store_flags
from jobpool.cli.jobs.acting import operating
from jobpool.cli.jobs.known_names import check_known
from jobpool.cli.output import print_json, print_line
from jobpool.core.application.handler_spec import check_kind, check_pool
from jobpool.core.event_lines import iso_time
from jobpool.core.units import duration_s
from jobpool.operations.queue import Pause, Resume
from jobpool.words.figures import ago

C = TypeVar("C", bound=Callable[..., Any])

_CHECKS: Mapping[str, Callable[[str], str]] = {
    "pool": check_pool,
    "kind": check_kind,
    "tenant": str,
    "quota": str,
}
"""Names that are none are refused with or without ``--force``; any text is a tenant."""


def _which(command: C) -> C:
    for option in (
        force_flag,
        click.option(
            "--all", "whole_store", is_flag=True, help="All jobs of the store."
        ),
        json_flag,
        store_flags,
        note_flag,
        click.option(
            "--quota",
            "quotas",
            multiple=True,
            metavar="NAME",
            help="The jobs that need this quota.",
        ),
        click.option(
            "--tenant",
            "tenants",
            multiple=True,
            metavar="NAME",
            help="The jobs of this tenant.",
        ),
        click.option(
            "--pool",
            "pools",
            type=Name("pool"),
            multiple=True,
            metavar="NAME",
            help="The jobs of this pool.",
        ),
        click.option(
            "--kind",
            "kinds",
            type=Name("kind"),
            multiple=True,
            metavar="KIND",
            help="The jobs of this kind.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "--for", "duration", metavar="TIME", help="How long: 10m. Default: until `resume`."
)
@_which
def pause(*, duration: str | None, **given: Any) -> None:
    """Stop starting jobs: a pool's, a kind's, or all of them; running ones go on."""
    for_s = None if duration is None else duration_s(duration, "--for")
    if for_s == 0:
        raise click.UsageError("--for must be longer than 0, such as 10m")
    ends = "" if for_s is None else f"ends by itself {_moment(for_s)}"
    _switch(partial(Pause, for_s=for_s), "paused", ends=ends, **given)


@click.command()
@_which
def resume(**given: Any) -> None:
    """Start jobs again of what is paused, or of a crashing kind.

    --all undoes `pause --all`, and the pause that `restored` makes; what was paused by
    itself stays so.
    """
    _switch(Resume, "resumed", **given)


def _switch(
    act: Callable[..., Pause | Resume],
    past: str,
    *,
    ends: str = "",
    pools: tuple[str, ...],
    kinds: tuple[str, ...],
    tenants: tuple[str, ...],
    quotas: tuple[str, ...],
    whole_store: bool,
    store: str | None,
    config: str | None,
    force: bool,
    note: str | None,
    as_json: bool,
) -> None:
    names = {"pool": pools, "kind": kinds, "tenant": tenants, "quota": quotas}
    if not whole_store and not any(names.values()):
        raise click.UsageError(
            "name what: --pool io, --kind shop.thumbnail, --tenant acme or --quota "
            "stripe; or say --all"
        )
    targets: list[dict[str, Any]] = [
        {what: _CHECKS[what](name)} for what, given in names.items() for name in given
    ]
    targets += [{"whole_store": True}] if whole_store else []
    sources = own_sources(store, config)
    with opened(sources) as found:
        if not force:
            check_known(found, sources, names)
        for target in targets:
            changed = operating(found, act(**target, note=note)).is_made
            if as_json:
                print_json({**target, past: True, "changed": changed})
            else:
                ((what, name),) = target.items()
                shown = "the whole store" if name is True else f"{what} {name}"
                print_line(f"{shown} {past}", ends, "" if changed else "(no change)")


def _moment(after_s: float) -> str:
    """Return when it is so long from now, for people."""
    now = now_ms()
    at_ms = now + round(after_s * 1000)
    return f"{ago(at_ms, now)}, at {iso_time(at_ms)}"
