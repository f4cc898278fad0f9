"""Pools, kinds, tenants and quotas that there are; and a slip in the name of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import click
import msgspec

from jobpool.cli.context import opened, own_sources
from jobpool.core.config.layers import nearest
from jobpool.core.config.pools import named_kinds, named_pools
from jobpool.core.config.sources import Sources
from jobpool.core.rules.quotas.definition import KIND_PREFIX
from jobpool.core.safe_text import one_line
from jobpool.errors import ConfigError
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter

COMPLETED_MAX = 50
"""So many jobs are offered to a shell: the newest."""
_SLIPS = ("pool", "kind")


def check_known(
    store: Store, sources: Sources, names: Mapping[str, Sequence[str]]
) -> None:
    """Refuse names that nobody has.

    Args:
        store: the store.
        sources: of the configuration.
        names: by ``pool``, ``kind``, ``tenant`` and ``quota``.

    Raises:
        ConfigError: nobody has one of them.
    """
    for slip in _nobodys(store, sources, names):
        end = "" if slip.endswith("?") else "."
        raise ConfigError(
            f"{slip}{end} Nothing was changed; add --force for a name that is not in "
            "use yet"
        )


def note_slips(
    store: Store, sources: Sources, selection: Mapping[str, str | None]
) -> None:
    """Say on stderr that a filter found nothing because nobody has its pool or kind."""
    names = {what: [name] for what in _SLIPS if (name := selection.get(what))}
    for slip in _nobodys(store, sources, names):
        click.echo(f"note: {one_line(slip)}", err=True)


def _nobodys(
    store: Store, sources: Sources, names: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield words about each name that nobody has.

    It is somebody's if a supervisor has or had it, if there are jobs of it, if the
    configuration or a rule names it, or if it is paused. The words name what was
    probably meant.
    """
    for what, given in names.items():
        if not given:
            continue
        known = _KNOWN[what](store, sources)
        known |= {name for one, name in store.paused() if one == what}
        for name in given:
            if name in known or _has_jobs(store, what, name):
                continue
            # Jobs that do not wait may have others: nobody can say that there are none.
            waiting = [getattr(row, what, name) for row in store.waiting()]
            others = known | {one for one in waiting if one != name}
            slip = f"no supervisor, job or configuration has {what} {name!r}"
            yield f"{slip}; {nearest(name, others)}" if others else slip


def _has_jobs(store: Store, what: str, name: str) -> bool:
    if what == "quota":
        return False
    which = msgspec.structs.replace(Filter(), **{what: name})
    return bool(store.find(which, 1))


def _pools(store: Store, sources: Sources) -> set[str]:
    """Return the pools that there are, but those of jobs alone."""
    pools = {*named_pools(sources)}.union(*(run.pools for run in store.open_runs()))
    return pools | {record.pool for record in store.kinds()}


def _kinds(store: Store, sources: Sources) -> set[str]:
    """Likewise, kinds."""
    kinds = {*named_kinds(sources)} | {record.kind for record in store.kinds()}
    return kinds | {one.kind for one in store.breakers()}


def _tenants(store: Store, sources: Sources) -> set[str]:
    """Likewise, tenants: those that have rules."""
    del sources
    return {row.name for row in store.tenants()}


def _quotas(store: Store, sources: Sources) -> set[str]:
    """Return the quotas that there are, and the own caps that kinds may have."""
    own = {KIND_PREFIX + kind for kind in _kinds(store, sources)}
    return {row.name for row in store.quotas()} | own


_KNOWN: Mapping[str, Callable[[Store, Sources], set[str]]] = {
    "pool": _pools,
    "kind": _kinds,
    "tenant": _tenants,
    "quota": _quotas,
}


def completions(
    what: str, store: str | None, config: str | None
) -> list[tuple[str, str]]:
    """Return the names that there are, or the newest jobs, each with words about it.

    Args:
        what: ``pool``, ``kind``, ``tenant``, ``quota`` or ``job``.
        store: what ``--store`` says, if it is given.
        config: likewise.

    Raises:
        JobpoolError: the configuration is wrong, or the store cannot be read.
    """
    sources = own_sources(store, config)
    with opened(sources) as found:
        if what == "job":
            jobs = found.find(Filter(), COMPLETED_MAX)
            return [(str(job.id), f"{job.state} {one_line(job.kind)}") for job in jobs]
        names = sorted(_KNOWN[what](found, sources))
    return [(name, "") for name in names]
