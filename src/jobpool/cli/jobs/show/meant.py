"""Which job `jobpool show` is asked for."""

from __future__ import annotations

import click

from jobpool.cli.jobs.selection import id_of
from jobpool.core.jobs.job import Job
from jobpool.errors import JobNotFound
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter


def meant(
    store: Store, name: int | str | None, key: str | None, kind: str | None
) -> Job:
    """Return the job that has an id, a ref or a key.

    Raises:
        UsageError: both or neither are given, or jobs of several kinds have the key.
        JobNotFound: no job has this id or key.
    """
    job_id = None if name is None else id_of(store, name)
    if (job_id is None) == (key is None) or (kind is not None and key is None):
        raise click.UsageError("name one job: its ID, or --key KEY [--kind KIND]")
    which = Filter(ids=None if job_id is None else (job_id,), key=key, kind=kind)
    jobs = store.find(which)
    if len(jobs) > 1:
        known = ", ".join(f"{job.kind} (job {job.id})" for job in jobs)
        raise click.UsageError(
            f"jobs of several kinds have the key {key!r}: {known}; add --kind KIND"
        )
    if not jobs:
        what = f"job {job_id}" if key is None else f"job with the key {key!r}"
        of = f" of kind {kind!r}" if kind else ""
        raise JobNotFound(
            f"there is no {what}{of} in {store.url}; it may have been pruned, or is in "
            "another store (--store)"
        )
    return jobs[0]
