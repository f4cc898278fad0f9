"""Which jobs a command means: flags to a filter."""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.cli.context import now_ms
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import FlowNotFound, JobNotFound
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.words.jobs.states import RETRYABLE
from jobpool.words.moments import since_ms


def chosen(
    *,
    states: Sequence[str],
    kind: str | None,
    pool: str | None,
    tenant: str | None,
    since: str | None,
    outcome: str | None,
    error_class: str | None,
    key: str | None = None,
) -> Filter:
    """Return the filter of the flags.

    Raises:
        ConfigError: ``--since`` is not a time.
    """
    stored = {JobState.PENDING if s == RETRYABLE else JobState(s) for s in states}
    return Filter(
        states=tuple(sorted(stored)) or None,
        kind=kind,
        pool=pool,
        tenant=tenant,
        key=key,
        outcome=None if outcome is None else Outcome(outcome),
        error_class=error_class,
        since_ms=None if since is None else since_ms(since, now_ms()),
    )


def id_of(store: Store, meant: int | str) -> int:
    """Return the id of a job that is named by its id or its ref.

    Raises:
        JobNotFound: it is not a ref of this store.
    """
    if isinstance(meant, int):
        return meant
    job_id = store.id_of(meant)
    if job_id is None:
        raise JobNotFound(
            f"no job has the ref {meant} in {store.url}: it is another store's "
            "(--store), or was changed on its way"
        )
    return job_id


def flow_id_of(store: Store, meant: int | str) -> int:
    """Return the id of a flow that is named by its id or its ref.

    Raises:
        FlowNotFound: it is not a ref of this store.
    """
    if isinstance(meant, int):
        return meant
    flow_id = store.flow_id_of(meant)
    if flow_id is None:
        raise FlowNotFound(
            f"no flow has the ref {meant} in {store.url}: it is another store's "
            "(--store), or was changed on its way"
        )
    return flow_id
