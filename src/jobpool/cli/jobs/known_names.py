"""Pools and kinds that somebody has; and a slip in the name of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click

from jobpool.core.config.layers import nearest
from jobpool.core.config.pools import named_kinds, named_pools
from jobpool.core.config.sources import Sources
from jobpool.core.safe_text import one_line
from jobpool.store.protocol import Store
from jobpool.store.records import Filter

_WHAT = ("pool", "kind")


def nobodys(
    store: Store, sources: Sources, *, pools: Sequence[str], kinds: Sequence[str]
) -> Iterator[str]:
    """Yield words about each pool and kind that nobody has.

    It is somebody's if a supervisor has or had it, if there are jobs of it, if the
    configuration names it, or if it is paused. The words name what was probably meant.
    """
    known_pools, known_kinds = _known(store, sources)
    for name in pools:
        if name not in known_pools and not store.find(Filter(pool=name), 1):
            yield _slip("pool", name, known_pools | {r.pool for r in store.waiting()})
    for name in kinds:
        if name not in known_kinds and not store.find(Filter(kind=name), 1):
            yield _slip("kind", name, known_kinds | {r.kind for r in store.waiting()})


def note_slips(
    store: Store, sources: Sources, selection: Mapping[str, str | None]
) -> None:
    """Say on stderr that a filter found nothing because nobody has its pool or kind."""
    pools, kinds = ([name] if (name := selection.get(w)) else [] for w in _WHAT)
    for slip in nobodys(store, sources, pools=pools, kinds=kinds):
        click.echo(f"note: {one_line(slip)}", err=True)


def _slip(what: str, name: str, known: set[str]) -> str:
    slip = f"no supervisor, job or configuration has {what} {name!r}"
    # Jobs that do not wait may have others: nobody can say that there are none.
    return f"{slip}; {nearest(name, known)}" if known else slip


def _known(store: Store, sources: Sources) -> tuple[set[str], set[str]]:
    """Return the pools and the kinds that there are, but those of jobs alone."""
    published, paused = store.kinds(), store.paused()
    pools = {name for what, name in paused if what == "pool"}
    pools.update(*(run.pools for run in store.open_runs()), named_pools(sources))
    pools.update(record.pool for record in published)
    kinds = {name for what, name in paused if what == "kind"}
    kinds.update((record.kind for record in published), named_kinds(sources))
    kinds.update(one.kind for one in store.breakers())
    return pools, kinds
