"""Looks at the running demo through its store, as any other program could."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from jobpool.cli.demo.setting import Setting
from jobpool.core.job import FINISHED, Attempt, Job, JobState
from jobpool.core.outcome import Outcome
from jobpool.store.base import Store
from jobpool.store.records import Filter, StatRow

_PAGE = 1000


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """How far one pool has come."""

    jobs: int = 0
    ended: int = 0
    running: int = 0
    """Leased: running, or about to."""


class Contained(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a hostile job that has ended."""

    kind: str
    attempt: int
    outcome: Outcome
    reason: str | None
    state: JobState | None = None
    """Where this has brought its job, if that has ended now."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look has shown."""

    pools: Mapping[str, PoolView]
    news: Sequence[Contained] = ()
    """Since the look before."""

    @property
    def jobs(self) -> int:
        """All jobs."""
        return sum(pool.jobs for pool in self.pools.values())

    @property
    def ended(self) -> int:
        """Jobs that have ended for good."""
        return sum(pool.ended for pool in self.pools.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.ended == self.jobs


class Watcher:
    """Reads progress and news from the store.

    Args:
        store: open; this thread's.
        setting: whose jobs to look at.
    """

    def __init__(self, store: Store, setting: Setting) -> None:
        self._store = store
        self._hostile = tuple(setting.hostile_ids())
        self._reported: dict[int, int] = {}
        self._closed: set[int] = set()

    def look(self) -> Look:
        """Look once."""
        # News first: who has ended by then is in the counts as well.
        news = [item for job in self._hostile_jobs() for item in self._news_of(job)]
        return Look(pools=by_pool(self._store.stats()), news=news)

    def _hostile_jobs(self) -> list[Job]:
        which = Filter(ids=self._hostile)
        return self._store.find(which, limit=len(self._hostile))[::-1]

    def _news_of(self, job: Job) -> Iterator[Contained]:
        if job.id in self._closed or job.attempt == 0:
            return
        is_over = job.state in FINISHED
        past = self._store.attempts(job.id)
        known = self._reported.get(job.id, 0)
        self._reported[job.id] = len(past)
        if is_over:
            self._closed.add(job.id)
        items = [contained(job, attempt) for attempt in past[known:]]
        if is_over and job.state is JobState.SUCCEEDED:
            items.append(
                Contained(
                    kind=job.kind,
                    attempt=job.attempt,
                    outcome=Outcome.SUCCEEDED,
                    reason=None,
                )
            )
        if is_over and items:
            items[-1] = msgspec.structs.replace(items[-1], state=job.state)
        yield from items


def contained(job: Job, attempt: Attempt) -> Contained:
    """Return an unsuccessful attempt as news."""
    return Contained(
        kind=job.kind,
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        reason=attempt.error_class or attempt.reason,
    )


def by_pool(rows: Sequence[StatRow]) -> dict[str, PoolView]:
    """Add up the store's counts by pool."""
    found: dict[str, PoolView] = {}
    for row in sorted(rows, key=lambda row: row.pool):
        pool = found.get(row.pool, PoolView())
        found[row.pool] = PoolView(
            jobs=pool.jobs + row.jobs,
            ended=pool.ended + (row.jobs if row.state in FINISHED else 0),
            running=pool.running + (row.jobs if row.state == JobState.LEASED else 0),
        )
    return found


def all_jobs(store: Store) -> Iterator[Job]:
    """Yield every job of the store, newest first."""
    before: int | None = None
    while page := store.find(Filter(), limit=_PAGE, before_id=before):
        yield from page
        before = page[-1].id
