"""Reads how far the demo is through its store, as any other program could."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jobpool.cli.demo.workspace import Workspace
from jobpool.core.jobs.job import FINISHED, Job, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.reading import StatRow


class PoolProgress(NamedTuple):
    """How far one pool is."""

    jobs: int = 0
    ended: int = 0
    running: int = 0
    """Leased: running, or about to."""


class Contained(NamedTuple):
    """One attempt of a hostile job that has ended."""

    kind: str
    attempt: int
    outcome: Outcome
    reason: str | None = None
    state: JobState | None = None
    """Where this has brought its job, if that has ended now."""


class Sample(NamedTuple):
    """The state of the demo at one moment."""

    pools: Mapping[str, PoolProgress]
    news: Sequence[Contained] = ()
    """Since the sample before."""

    @property
    def ended(self) -> int:
        """Jobs that have ended for good."""
        return sum(pool.ended for pool in self.pools.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.ended == sum(pool.jobs for pool in self.pools.values())


class Progress:
    """Samples a running demo.

    Args:
        store: open; this thread's.
        workspace: whose jobs to read.
    """

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._reported = dict.fromkeys(workspace.hostile_ids, 0)
        """Attempts that were news, of each hostile job that has not ended."""

    def sample(self) -> Sample:
        """Read the present state."""
        # Counts first: once they say that all is over, the news has every end.
        pools = by_pool(self._store.stats())
        wanted = Filter(ids=tuple(self._reported))
        jobs = self._store.find(wanted, limit=len(self._reported))
        news = [item for job in jobs[::-1] for item in self._news_of(job)]
        return Sample(pools, news)

    def _news_of(self, job: Job) -> Iterator[Contained]:
        # The one that was running may have ended since the job was read: later.
        is_running = job.state is JobState.LEASED
        last = job.attempt - is_running
        past = [a for a in self._store.attempts(job.id) if a.attempt <= last]
        items = [
            Contained(job.kind, one.attempt, one.outcome, one.error_class or one.reason)
            for one in past[self._reported[job.id] :]
        ]
        self._reported[job.id] = len(past)
        if job.state in FINISHED:
            del self._reported[job.id]
            if job.state is JobState.SUCCEEDED:
                items.append(Contained(job.kind, job.attempt, Outcome.SUCCEEDED))
            items[-1] = items[-1]._replace(state=job.state)
        yield from items


def by_pool(rows: Sequence[StatRow]) -> dict[str, PoolProgress]:
    """Add up the store's counts by pool."""
    found: dict[str, PoolProgress] = {}
    for row in sorted(rows, key=lambda row: row.pool):
        pool = found.get(row.pool, PoolProgress())
        found[row.pool] = PoolProgress(
            jobs=pool.jobs + row.jobs,
            ended=pool.ended + (row.jobs if row.state in FINISHED else 0),
            running=pool.running + (row.jobs if row.state == JobState.LEASED else 0),
        )
    return found
