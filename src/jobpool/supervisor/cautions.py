"""What the store thread does for `probation` and `breaking`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobpool.store.base import Store
from jobpool.store.records import LeaseBatch
from jobpool.supervisor import commands as cmd


def lease(
    store: Store,
    run_id: str,
    asked: cmd.Lease,
    kinds: Mapping[str, Sequence[str]],
) -> LeaseBatch:
    """Ask the store for jobs, of no kind that is held."""
    if asked.held:
        kinds = {
            pool: [kind for kind in names if kind not in asked.held]
            for pool, names in kinds.items()
        }
    return store.lease(
        run_id, asked.wanted, kinds, suspects=asked.suspects, alone=asked.alone
    )


def write(store: Store, run_id: str, cautions: Sequence[cmd.Caution]) -> None:
    """Write what was left, within a transaction."""
    if any(isinstance(one, cmd.Leaving) for one in cautions):
        store.note_leaving(run_id)
    cleared = [(one.id, one.token) for one in cautions if isinstance(one, cmd.Clear)]
    if cleared:
        store.clear(cleared)
    saved = [one.saved for one in cautions if isinstance(one, cmd.SaveBreaker)]
    if saved:
        store.save_breakers(saved)


def count_saves(cautions: Sequence[cmd.Caution]) -> int:
    """Count the breakers among what was written."""
    return sum(isinstance(one, cmd.SaveBreaker) for one in cautions)
