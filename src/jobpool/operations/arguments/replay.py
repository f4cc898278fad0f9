"""Replace finished jobs by new ones: with other arguments, or of another kind.

The old jobs stay as evidence, and name those that have replaced them. What the new ones
are is for the caller to say, who has the schemas or the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jobpool.core.jobs.job import UNFINISHED, Job, NewJob
from jobpool.errors import UsageError
from jobpool.operations.action import Change, Done, Step
from jobpool.operations.jobs import JobsAction
from jobpool.operations.principal import Principal
from jobpool.operations.selection import Selected, flow_to_retry, left_to_flow
from jobpool.store.protocol import Store
from jobpool.store.records import operating as records

_BATCH = 100
"""Fewer than of jobs that are revived: all of their arguments are in memory."""


class Replacement(NamedTuple):
    """What is to replace a job."""

    new: NewJob
    changed: tuple[str, ...]
    """Paths of the arguments that differ, as the audit trail may have them."""


class Replay(JobsAction, frozen=True, kw_only=True):
    """Replace jobs that have ended."""

    replace: Callable[[Job, bytes], Replacement]
    """Called with a job and its arguments as stored, twice if it is previewed. A
    UsageError that it raises leaves that job alone."""
    kind_to: str | None = None
    """The kind of the new jobs, for the audit trail; None: that of each old one."""
    chosen: tuple[int, ...] | None = None
    """Those of the jobs that somebody has looked at, in order; None: all are."""

    name = "replay"
    past = "replayed"
    states = ("dead", "quarantined", "canceled", "succeeded")
    usual = ("dead", "quarantined")
    elsewhere = dict.fromkeys(
        ("waiting", "pending", "retryable", "runnable", "leased"), "cancel it first"
    )

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        kind_to = {} if self.kind_to is None else {"kind_to": self.kind_to}
        return {**super().target(), **kind_to}

    def select(self, store: Store) -> Selected:
        """See `JobsAction.select`; no job that was not looked at."""
        if self.chosen is None:
            return super().select(store)
        return Selected(list(self.chosen), [])

    def planned(
        self, store: Store, ids: Sequence[int], refused: list[str]
    ) -> Iterator[tuple[Job, Replacement]]:
        """Yield jobs with what would replace them; changes nothing.

        Args:
            store: where they are.
            ids: of the jobs.
            refused: remarks about those that cannot be replaced are added.
        """
        for batch in _batches(ids):
            which = records.Filter(ids=tuple(batch))
            found = {job.id: job for job in store.find(which, len(batch))}
            for job_id in batch:
                job, payload = found.get(job_id), store.payload(job_id)
                if job is None or not payload:
                    refused.append(f"job {job_id} or its arguments are gone")
                    continue
                if job.shown_state not in self._meant:
                    refused.append(f"job {job_id} is {job.shown_state} meanwhile")
                    continue
                try:
                    yield job, self.replace(job, payload)
                except UsageError as exc:
                    refused.append(f"job {job_id}: {exc}")

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by
        ids, refused = self.select(store)
        done.refused = refused
        done.matched = len(ids)
        for batch in self.paced([ids], _BATCH, done):
            planned = list(self.planned(store, batch, refused))
            made: dict[int, int] = {}
            if planned:
                yield _replacing(store, planned, made)
            done.replaced_by |= made
            refused += [
                _why_not(store, job.id) for job, _ in planned if job.id not in made
            ]


def successor(
    job: Job,
    *,
    kind: str,
    pool: str,
    payload: bytes,
    codec: str | None = None,
    quota_values: Mapping[str, str] | None = None,
) -> NewJob:
    """Return a job to replace another: due now, with its options and fresh counters.

    Args:
        job: the one to be replaced.
        kind: of the new one.
        pool: in which that kind runs.
        payload: the arguments.
        codec: through which they have passed.
        quota_values: what quotas count it by; None: the store finds it out.
    """
    return NewJob(
        kind=kind,
        pool=pool,
        payload=payload,
        priority=job.priority,
        key=job.key,
        unique=job.unique,
        tenant=job.tenant,
        max_attempts=job.max_attempts,
        timeout_s=job.timeout_s,
        memory_bytes=job.memory_bytes,
        codec=codec,
        quota_values=quota_values,
    )


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]


def _replacing(
    store: Store, planned: Sequence[tuple[Job, Replacement]], made: dict[int, int]
) -> Step:
    """Return a step that replaces jobs, and notes which."""

    def step() -> Change:
        new = store.replay(
            [records.Replay(job_id=job.id, new=one.new) for job, one in planned]
        )
        pairs = zip(planned, new, strict=True)
        done = [(job, one, new_id) for (job, one), new_id in pairs if new_id]
        made.update((job.id, new_id) for job, _, new_id in done)
        return Change(
            is_made=bool(made),
            jobs=len(made),
            ids=list(made),
            new_ids=list(made.values()),
            changed=[path for _, one, _ in done for path in one.changed],
        )

    return step


def _why_not(store: Store, job_id: int) -> str:
    """Say why the store has not replaced a job."""
    job = store.get(job_id)
    if job is None:
        return f"job {job_id} is gone: it was pruned meanwhile"
    if job.replaced_by is not None:
        return f"job {job_id} was replaced by job {job.replaced_by} meanwhile"
    if job.state in UNFINISHED:
        return f"job {job_id} is {job.shown_state} again"
    if job.is_erased:
        return f"job {job_id} was erased meanwhile"
    if (flow := flow_to_retry(store, job_id)) is not None:
        return left_to_flow(job_id, flow)
    return (
        f"job {job_id}: another job of the new kind has its key, or an unfinished one "
        "has its unique text"
    )
