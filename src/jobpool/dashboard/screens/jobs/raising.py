"""A higher memory limit for a job that ran out of memory: what would probably do."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jobpool.core.jobs.job import Job, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.limits import why_not_raised
from jobpool.core.rules.run_report import RunReport, memory_max_bytes
from jobpool.core.rules.usage.sketch import Counts, Measure
from jobpool.core.rules.usage.tuning import memory_proposal, next_bytes
from jobpool.monitoring.looking.reading import Seen
from jobpool.store.protocol import Store

_SET_ASIDE = frozenset({JobState.DEAD, JobState.QUARANTINED})


class Raising(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know before a job is given more memory."""

    now_bytes: int
    """The limit that has killed it."""
    proposed_bytes: int
    most_bytes: int | None
    """What its pool allows; None: nobody has said."""
    why_not: str
    """Why it cannot be given that; "": it can."""


def raising_of(
    store: Store, seen: Seen, sketches: Mapping[Measure, Mapping[int, Counts]]
) -> Raising | None:
    """Return what a job would be released with; None: its memory is no matter.

    Args:
        store: where the supervisors have said what they allow.
        seen: what was read of the job.
        sketches: what attempts of its kind have used.
    """
    job, known = seen.job, seen.known
    now_bytes = job.memory_bytes or (known.memory_bytes if known else None)
    if now_bytes is None or not _ran_out(job):
        return None
    reports = [row.report for row in store.run_reports()]
    return raised(job, now_bytes, reports, sketches.get(Measure.MEMORY, {}))


def _ran_out(job: Job) -> bool:
    return job.state in _SET_ASIDE and job.outcome is Outcome.OUT_OF_MEMORY


def raised(
    job: Job,
    now_bytes: int,
    reports: list[RunReport],
    counts: Mapping[int, Counts],
) -> Raising:
    """Return what a job would be released with. Pure.

    Args:
        job: has run out of memory.
        now_bytes: its limit.
        reports: of the supervisors.
        counts: the memory that attempts of its kind have used.
    """
    fits = memory_proposal(counts, now_bytes).proposed or 0.0
    most = memory_max_bytes(reports, job.pool)
    wanted = max(round(fits), round(next_bytes(now_bytes)))
    proposed = wanted if most is None else min(wanted, most)
    return Raising(
        now_bytes=now_bytes,
        proposed_bytes=proposed,
        most_bytes=most,
        why_not=why_not_raised(
            proposed,
            kind=job.kind,
            now_bytes=now_bytes,
            pool=job.pool,
            most_bytes=most,
            is_fixed=any(job.kind in one.fixed_memory for one in reports),
        ),
    )
