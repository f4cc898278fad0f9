"""What is known of a zygote, of a pool that waits for one, and who may share which."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobpool.core.config.settings import PoolSettings, Settings
from jobpool.core.isolation.measures import variables
from jobpool.sandbox.handles.zygote import Zygote, environment_of

NEVER_S = float("inf")
LOAD_MEMORY_MIN_BYTES = 64 * 2**20
"""A smaller limit is refused later, once it is known what a bare child needs."""


@dataclass(slots=True, eq=False)
class Kept:
    """A zygote and what is known of it."""

    zygote: Zygote
    pool: str
    load_until_s: float
    """It must have loaded by then; infinity: it has."""
    memory_bytes: int
    settings: Settings
    """The operator's, under which it was started."""
    origin: str = ""
    """The pool from whose zygote it was forked; "": it imports by itself."""
    own_import: str = ""
    """Why it was not forked from another's; "": nothing spoke against it."""
    why: tuple[str, str] | None = None
    """Why it was killed or failed: a message and a traceback."""
    forking: set[int] = field(default_factory=set)
    """Slots that wait for a child from it."""
    children: set[int] = field(default_factory=set)
    """Pids of the children that it guards."""

    def kill(self, why: str) -> None:
        """Kill it; its loss is seen on its socket, and reported with the reason."""
        self.why = (why, "")
        self.zygote.kill()


@dataclass(slots=True, eq=False)
class Waiting:
    """A pool that waits for its zygote to be forked from another pool's."""

    source: Kept
    number: int = 0
    """Of the request; 0: the source has not loaded yet."""
    control: socket.socket | None = None
    """Our end of the new zygote's socket."""
    until_s: float = NEVER_S

    def close(self) -> None:
        """Forget the request: a zygote that is forked nevertheless ends."""
        if self.control is not None:
            self.control.close()


def source_of(
    pool: PoolSettings,
    others: Iterable[Kept],
    pools: Mapping[str, PoolSettings],
    run_id: str,
) -> Kept | str:
    """Return the zygote from which a pool's can be forked.

    If there is none, return why those that there are do not do; "": there are none.

    Args:
        pool: the pool.
        others: zygotes under the same settings.
        pools: the settings of all pools, by name.
        run_id: marks their processes.
    """
    if not pool.preload:
        return ""
    fit = [
        kept for kept in others if kept.pool != pool.name and pools[kept.pool].preload
    ]
    ours = environment_of(run_id, variables(pool))
    for kept in fit:
        if ours == environment_of(run_id, variables(pools[kept.pool])):
            return kept
    if not fit:
        return ""
    return f"its children see other variables than those of {fit[0].pool}"


def load_memory_bytes(pool: PoolSettings) -> int:
    """Return what a zygote may take while it imports the application."""
    return max(pool.limits.memory_bytes, LOAD_MEMORY_MIN_BYTES)
