"""Cancel, retry and release jobs: some by their ids, or all that a filter finds.

Jobs are changed in batches, the oldest first, each batch in a transaction of its own:
a bulk of a million must not hold the database for minutes. It is still one row in the
audit trail, whose count and ids grow with each batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from jobpool.core.jobs.job import JobState
from jobpool.errors import UsageError
from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.operations.selection import Selected, Selection, by_id, matching
from jobpool.store.protocol import Store

_BATCH = 500
_BATCHES_PER_S = 10
"""With a rate: small batches this often, rather than a large one each second."""


class JobsAction(Action, frozen=True, kw_only=True):
    """What is done to jobs that exist."""

    jobs: Selection
    per_s: float | None = None
    """No faster than this."""

    past: ClassVar[str]
    """The verb's past participle."""
    states: ClassVar[tuple[str, ...]]
    """The states, as shown, that it applies to."""
    usual: ClassVar[tuple[str, ...]]
    """The states that a filter without any selects."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """A hint for jobs in other states."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return self.jobs.target()

    def select(self, store: Store) -> Selected:
        """Find the jobs that are meant; changes nothing.

        Raises:
            UsageError: neither ids nor a filter are given, or both.
        """
        which = self.jobs.which
        if bool(self.jobs.ids) == (which is not None):
            raise UsageError(
                f"{self.name}: expected either ids or a filter; nothing was changed"
            )
        states = self.jobs.shown or (self.states if which is None else self.usual)
        if which is None:
            return by_id(store, self.jobs.ids, states, self.past, self.elsewhere)
        return Selected([job.id for job in matching(store, which, states)][::-1], [])

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by
        ids, done.refused = self.select(store)
        done.matched = len(ids)
        yield from self.batches(store, ids)

    def batches(self, store: Store, ids: Sequence[int]) -> Iterator[Step]:
        """Yield a step for each batch, no faster than was said."""
        size = _BATCH
        if self.per_s is not None:
            size = max(1, min(_BATCH, int(self.per_s / _BATCHES_PER_S)))
        begun_s = time.monotonic()
        for start in range(0, len(ids), size):
            if self.per_s is not None:
                due_s = begun_s + start / self.per_s
                time.sleep(max(0.0, due_s - time.monotonic()))
            yield self._step(store, ids[start : start + size])

    def _step(self, store: Store, ids: Sequence[int]) -> Step:
        def step() -> Change:
            jobs = self.act(store, ids)
            return Change(is_made=jobs > 0, jobs=jobs, ids=ids)

        return step

    def act(self, store: Store, ids: Sequence[int]) -> int:
        """Change some jobs; return how many were changed."""
        raise NotImplementedError


class Cancel(JobsAction, frozen=True, kw_only=True):
    """End jobs that have not ended; running ones are killed."""

    name = "cancel"
    past = "canceled"
    states = ("waiting", "pending", "retryable", "runnable", "leased", "quarantined")
    usual = ("waiting", "pending", "retryable", "runnable", "leased")
    elsewhere = {"dead": "it has ended already"}  # noqa: RUF012 - a constant

    def act(self, store: Store, ids: Sequence[int]) -> int:
        """See `JobsAction.act`."""
        return store.cancel(ids)


class Revive(JobsAction, frozen=True, kw_only=True):
    """Make jobs due now, with fresh counters; their history is kept."""

    stored: ClassVar[tuple[JobState, ...]]
    """The states, as stored, that it applies to."""

    def act(self, store: Store, ids: Sequence[int]) -> int:
        """See `JobsAction.act`."""
        return store.revive(ids, self.stored)


class Retry(Revive, frozen=True, kw_only=True):
    """Run dead, canceled or waiting jobs now."""

    name = "retry"
    past = "retried"
    states = ("pending", "retryable", "dead", "canceled")
    usual = ("dead",)
    stored = (JobState.PENDING, JobState.DEAD, JobState.CANCELED)
    elsewhere = {"quarantined": "use jobpool release"}  # noqa: RUF012 - a constant


class Release(Revive, frozen=True, kw_only=True):
    """Put quarantined jobs back in line."""

    name = "release"
    past = "released"
    states = ("quarantined", "dead")
    usual = ("quarantined",)
    stored = (JobState.QUARANTINED, JobState.DEAD)
