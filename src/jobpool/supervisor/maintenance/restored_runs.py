"""Takes back what runs held when the backup was taken from which a store was restored.

To the restored store they look alive. They are not, or they have to stop: they notice
that the store went back in time (`store.contract.watermark`). Their attempts may all
have run to their ends since, in commits that are lost; and it was not the jobs' doing.
So each attempt is lost and charged as one whose supervisor's end was wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobpool.core.jobs.job import JobState
from jobpool.errors import StoreUnavailable
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.runs import Run
from jobpool.supervisor.maintenance.lost_jobs import PublishedPolicies, settle_all

_DIED = "it was leased when the backup was taken, and may have run to its end since"


class Fate(NamedTuple):
    """What became of a job that was leased when the backup was taken."""

    id: int
    kind: str
    state: JobState


def take_back_all(store: Store, now_ms: int) -> Sequence[Fate]:
    """Settle what every open run holds, and end the runs; within a transaction.

    Raises:
        StoreUnavailable: another session's open transaction locks a job; roll back.
    """
    policies = PublishedPolicies(store.kinds())
    ids: list[int] = []
    for run in store.open_runs():
        ids += _take_back(store, run, policies, now_ms)
    jobs = store.find(Filter(ids=tuple(ids)), limit=len(ids)) if ids else []
    return [Fate(job.id, job.kind, job.state) for job in reversed(jobs)]


def _take_back(
    store: Store, run: Run, policies: PublishedPolicies, now_ms: int
) -> list[int]:
    ids = [lease.id for lease in store.leases_of(run.id)]
    store.note_leaving(run.id)
    taken = settle_all(
        store, run, running=None, registry=policies, now_ms=now_ms, died=_DIED
    )
    if taken.later:
        raise StoreUnavailable(
            f"{taken.later} jobs of run {run.id} are locked by an open transaction; "
            "end it, and run this again. Nothing was changed"
        )
    store.end_run(run.id)
    return ids
