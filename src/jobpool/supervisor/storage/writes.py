"""What one commit of the store thread writes, and what it asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from jobpool.core.jobs.job import Settlement
from jobpool.store.protocol import Store
from jobpool.store.records.jobs import HeldBack, LeaseBatch, Receipt
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.storage.inbox import Inbox


def write_ends(
    store: Store, run_id: str, batch: Inbox, due: list[Settlement]
) -> list[Receipt]:
    """Write starts, progress, notes and ends, within a transaction."""
    if batch.starts:
        store.begin_attempts(batch.starts)
    if batch.progress:
        store.record(batch.progress)
    if batch.safety_notes:
        _write_notes(store, run_id, batch.safety_notes)
    return store.settle(due) if due else []


def lease(
    store: Store,
    run_id: str,
    asked: cmd.Lease,
    kinds: Mapping[str, Sequence[str]],
) -> LeaseBatch:
    """Ask the store for jobs, of no kind that is held."""
    return store.lease(
        run_id,
        asked.wanted,
        _without(kinds, asked.held),
        suspects=asked.suspects,
        alone=asked.alone,
        ahead=asked.ahead,
        slow_s=asked.slow_s,
    )


def held_back(
    store: Store, asked: cmd.Lease, kinds: Mapping[str, Sequence[str]]
) -> HeldBack | None:
    """Say whether quotas hold back what was asked for, if nothing was granted."""
    return store.held_back(_without(kinds, asked.held))


def _without(
    kinds: Mapping[str, Sequence[str]], held: Collection[str]
) -> Mapping[str, Sequence[str]]:
    if not held:
        return kinds
    return {
        pool: [kind for kind in names if kind not in held]
        for pool, names in kinds.items()
    }


def is_left(wanted: Mapping[str, int], grant: LeaseBatch) -> bool:
    """Say whether others are to be woken for members that a lease has opened.

    It takes them itself if it can, as in a chain on one host. Others are needed for a
    pool in which it wanted none, took none, or could have taken more if it had wanted
    more. What it leaves for other reasons is found by their polls.

    Args:
        wanted: what was asked for, by pool.
        grant: the answer.
    """
    got = Counter(lease.pool for lease in grant.leases)
    with_members = {one.pool for one in grant.leases if one.step is not None}
    return any(
        pool not in with_members or got[pool] >= wanted[pool] for pool in grant.opened
    )


def _write_notes(
    store: Store, run_id: str, safety_notes: Sequence[cmd.SafetyNote]
) -> None:
    """Write clearances, breakers and the note of leaving, within a transaction."""
    if any(isinstance(one, cmd.Leaving) for one in safety_notes):
        store.note_leaving(run_id)
    cleared = [
        (one.id, one.token) for one in safety_notes if isinstance(one, cmd.Clear)
    ]
    if cleared:
        store.clear(cleared)
    saved = [one.saved for one in safety_notes if isinstance(one, cmd.SaveBreaker)]
    if saved:
        store.save_breakers(saved)


def count_saves(safety_notes: Sequence[cmd.SafetyNote]) -> int:
    """Count the breakers among them."""
    return sum(isinstance(one, cmd.SaveBreaker) for one in safety_notes)
