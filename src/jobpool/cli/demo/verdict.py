"""What a demo has found, and whether everything went as it must. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from jobpool.cli.demo.app import HASH, PARSE
from jobpool.cli.demo.cases import BY_KIND
from jobpool.cli.demo.handlers import Hashed, Module
from jobpool.core.jobs.job import Attempt, Job, JobState


class Hostile(msgspec.Struct, frozen=True, kw_only=True):
    """How one hostile job ended."""

    job: Job
    signal: int | None
    """Of its last attempt, as is the exit code."""
    exit_code: int | None
    peak_rss_bytes: int
    """Of its hungriest attempt."""
    is_contained: bool
    """It ended as it must."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the store says about a finished demo."""

    honest: int
    """Honest jobs."""
    succeeded: int
    """Of them."""
    first_attempt: int
    """Succeeded at their first attempt."""
    blamed: int
    """Were charged a failure or a crash that was not theirs."""
    modules: Module
    packages: Hashed
    hostile: Sequence[Hostile]
    peak_rss_bytes: int
    """Of the hungriest attempt of all."""
    unknown: int
    """Jobs that the demo has not stored."""


def judge(jobs: Sequence[Job], attempts: Mapping[int, Sequence[Attempt]]) -> Verdict:
    """Add up.

    Args:
        jobs: all jobs of the store, in any order.
        attempts: the unsuccessful attempts of the hostile ones, by id.
    """
    ordered = sorted(jobs, key=lambda job: job.id)
    honest = [job for job in ordered if job.kind in (PARSE, HASH)]
    succeeded = [job for job in honest if job.state is JobState.SUCCEEDED]
    hostile = [
        judged(job, attempts.get(job.id, ())) for job in ordered if job.kind in BY_KIND
    ]
    return Verdict(
        honest=len(honest),
        succeeded=len(succeeded),
        first_attempt=sum(job.attempt == 1 for job in succeeded),
        blamed=sum(job.failures > 0 or job.crashes > 0 for job in honest),
        modules=_sum_of_modules([job for job in succeeded if job.kind == PARSE]),
        packages=_sum_of_packages([job for job in succeeded if job.kind == HASH]),
        hostile=hostile,
        peak_rss_bytes=max(
            [job.peak_rss_bytes or 0 for job in honest]
            + [one.peak_rss_bytes for one in hostile]
        ),
        unknown=len(ordered) - len(honest) - len(hostile),
    )


def _sum_of_modules(jobs: Sequence[Job]) -> Module:
    found = [msgspec.json.decode(job.result or b"", type=Module) for job in jobs]
    fields = Module.__struct_fields__
    return Module(**{name: sum(getattr(one, name) for one in found) for name in fields})


def _sum_of_packages(jobs: Sequence[Job]) -> Hashed:
    found = [msgspec.json.decode(job.result or b"", type=Hashed) for job in jobs]
    return Hashed(
        bytes=sum(hashed.bytes for hashed in found),
        lines="".join(hashed.lines for hashed in found),
    )


def checksum(hashed: Hashed) -> str:
    """Return the checksum of all lines of ``sha256sum``, in order."""
    return hashlib.sha256(hashed.lines.encode()).hexdigest()


def judged(job: Job, attempts: Sequence[Attempt]) -> Hostile:
    """Say how a hostile job ended, and whether that is as it must be."""
    end = BY_KIND[job.kind].end
    last = attempts[-1] if attempts else None
    peaks = [job.peak_rss_bytes, *(one.peak_rss_bytes for one in attempts)]
    return Hostile(
        job=job,
        signal=last.signal if last else None,
        exit_code=last.exit_code if last else None,
        peak_rss_bytes=max(peak or 0 for peak in peaks),
        is_contained=(job.state, job.outcome, job.failures) == end
        and all(one.outcome is end.outcome for one in attempts),
    )


def problems(found: Verdict, *, expected_jobs: int, left: Sequence[int]) -> list[str]:
    """Return what is not as it must be, in words; empty: all is well.

    Args:
        found: the figures.
        expected_jobs: how many jobs were stored.
        left: processes that still run.
    """
    jobs = found.honest + len(found.hostile)
    failed = found.honest - found.succeeded
    again = found.succeeded - found.first_attempt
    missing = (
        f"{expected_jobs} jobs were stored, but {jobs} of them and {found.unknown} "
        "others are there"
    )
    checks: dict[str, object] = {
        missing: jobs != expected_jobs or found.unknown,
        f"{failed} honest jobs did not succeed": failed,
        f"{found.blamed} honest jobs were blamed": found.blamed,
        f"{again} honest jobs needed a second attempt": again,
        f"processes are left: {', '.join(map(str, left))}": left,
    }
    return [text for text, is_wrong in checks.items() if is_wrong] + [
        f"{one.job.kind} (job {one.job.id}) ended {one.job.state}, {one.job.outcome}, "
        f"after {one.job.failures} failures"
        for one in found.hostile
        if not one.is_contained
    ]
