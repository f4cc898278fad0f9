"""`jobpool pause` and `resume`: stop and restart leasing of a pool or a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import json_flag, store_flags
from jobpool.cli.jobs.known_names import nobodys
from jobpool.cli.output import print_json, print_line
from jobpool.core.application.handler_spec import check_kind, check_pool
from jobpool.errors import ConfigError
from jobpool.store.protocol import Store

C = TypeVar("C", bound=Callable[..., Any])


def _which(command: C) -> C:
    for option in (
        click.option(
            "--force", is_flag=True, help="Accept a name that is not in use yet."
        ),
        json_flag,
        store_flags,
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
@_which
def pause(**given: Any) -> None:
    """Stop starting jobs of a pool or a kind; running ones go on."""
    _switch("paused", lambda store, target: store.pause(**target), **given)


@click.command()
@_which
def resume(**given: Any) -> None:
    """Start jobs again of a paused pool, or of a paused or crashing kind."""
    _switch("resumed", _resume, **given)


def _resume(store: Store, target: dict[str, str]) -> bool:
    """Undo a pause, and close the circuit breaker of a kind."""
    changed = store.resume(**target)
    kind = target.get("kind")
    broken = [one for one in store.breakers() if one.kind == kind]
    store.save_breakers(msgspec.structs.replace(one, crashes=0) for one in broken)
    return changed or bool(broken)


def _switch(
    done: str,
    call: Callable[[Store, dict[str, str]], bool],
    *,
    pools: tuple[str, ...],
    kinds: tuple[str, ...],
    store: str | None,
    config: str | None,
    force: bool,
    as_json: bool,
) -> None:
    if not pools and not kinds:
        raise click.UsageError(
            "name a pool or a kind: --pool io, or --kind shop.thumbnail"
        )
    targets = [{"pool": check_pool(name)} for name in pools]
    targets += [{"kind": check_kind(name)} for name in kinds]
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
            changed = call(found, target)
            if as_json:
                print_json({**target, done: True, "changed": changed})
            else:
                (what, name), *_ = target.items()
                print_line(f"{what} {name} {done}", "" if changed else "(no change)")
        found.wake()
