"""In which trace a job is."""

from __future__ import annotations

from jobpool.core.config.settings import TraceLinks
from jobpool.core.jobs.job import Job
from jobpool.core.jobs.trace import TraceContext, Tracer
from jobpool.store.protocol import Store


def trace_of(store: Store, job: Job, traces: TraceLinks) -> TraceContext | None:
    """Return the context of a job's attempts; None: it is in no trace.

    One that was enqueued in none begins one with its first attempt, if spans are sent.

    Args:
        store: where it is.
        job: as stored.
        traces: which are recorded.
    """
    stored = store.trace(job.id)
    if stored is None and not (job.attempt and traces.sample):
        return None
    return Tracer(store.trace_key(), traces.sample).of(stored, job.id, 0)
