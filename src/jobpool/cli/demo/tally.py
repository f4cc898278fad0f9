"""What a demo has found, and whether everything went as it must. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobpool.cli.demo.app import HASH, PARSE
from jobpool.cli.demo.cases import BY_KIND
from jobpool.cli.demo.honest import Hashed, Module
from jobpool.core.job import Attempt, Job, JobState
from jobpool.core.outcome import Outcome


class Honest(msgspec.Struct, frozen=True, kw_only=True):
    """How the honest jobs fared."""

    jobs: int = 0
    succeeded: int = 0
    first_attempt: int = 0
    """Succeeded at their first attempt."""
    recovered: int = 0
    """Succeeded at a later one, because a supervisor died or was stopped."""
    blamed: int = 0
    """Were charged a failure or a crash that was not theirs."""


class Packages(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the hashed files."""

    files: int = 0
    bytes: int = 0
    sha256: str = ""
    """Of all lines of ``sha256sum``, in order."""


class Hostile(msgspec.Struct, frozen=True, kw_only=True):
    """How one hostile job ended."""

    id: int
    kind: str
    does: str
    state: JobState
    outcome: Outcome | None
    attempts: int
    failures: int
    crashes: int
    signal: int | None
    exit_code: int | None
    reason: str | None
    peak_rss_bytes: int | None
    """Of its hungriest attempt."""
    contained: bool
    """It ended as it must."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the store says about a finished demo."""

    honest: Honest
    modules: Module
    packages: Packages
    hostile: Sequence[Hostile]
    child_peak_bytes: int
    """Of the hungriest attempt of all."""
    unknown: int = 0
    """Jobs that the demo has not stored."""


def tally(jobs: Iterable[Job], attempts: Mapping[int, Sequence[Attempt]]) -> Tally:
    """Add up.

    Args:
        jobs: all jobs of the store, in any order.
        attempts: the unsuccessful attempts of the hostile ones, by id.
    """
    ordered = sorted(jobs, key=lambda job: job.id)
    parsed = [job for job in ordered if job.kind == PARSE]
    hashed = [job for job in ordered if job.kind == HASH]
    hostile = [
        judged(job, attempts.get(job.id, ())) for job in ordered if job.kind in BY_KIND
    ]
    peaks = [job.peak_rss_bytes or 0 for job in ordered]
    peaks += [item.peak_rss_bytes or 0 for item in hostile]
    return Tally(
        honest=fared([*parsed, *hashed]),
        modules=sum_of_modules(parsed),
        packages=sum_of_packages(hashed),
        hostile=hostile,
        child_peak_bytes=max(peaks, default=0),
        unknown=len(ordered) - len(parsed) - len(hashed) - len(hostile),
    )


def fared(jobs: Sequence[Job]) -> Honest:
    """Say how honest jobs fared."""
    succeeded = [job for job in jobs if job.state is JobState.SUCCEEDED]
    first = sum(job.attempt == 1 for job in succeeded)
    return Honest(
        jobs=len(jobs),
        succeeded=len(succeeded),
        first_attempt=first,
        recovered=len(succeeded) - first,
        blamed=sum(job.failures > 0 or job.crashes > 0 for job in jobs),
    )


def sum_of_modules(jobs: Iterable[Job]) -> Module:
    """Add up what was measured."""
    found = [msgspec.json.decode(job.result, type=Module) for job in jobs if job.result]
    return Module(
        **{
            field: sum(getattr(module, field) for module in found)
            for field in Module.__struct_fields__
        }
    )


def sum_of_packages(jobs: Iterable[Job]) -> Packages:
    """Add up sizes, and the checksum of all checksums."""
    whole = hashlib.sha256()
    files = size_bytes = 0
    for job in jobs:
        if not job.result:
            continue
        found = msgspec.json.decode(job.result, type=Hashed)
        files += found.lines.count("\n")
        size_bytes += found.bytes
        whole.update(found.lines.encode())
    return Packages(files=files, bytes=size_bytes, sha256=whole.hexdigest())


def judged(job: Job, attempts: Sequence[Attempt]) -> Hostile:
    """Say how a hostile job ended, and whether that is as it must be.

    Attempts that a dead or stopped supervisor took along count for nothing.
    """
    case = BY_KIND[job.kind]
    own = [
        attempt
        for attempt in attempts
        if attempt.outcome not in {Outcome.LOST, Outcome.INTERRUPTED}
    ]
    last = own[-1] if own else None
    peaks = [attempt.peak_rss_bytes or 0 for attempt in attempts]
    return Hostile(
        id=job.id,
        kind=job.kind,
        does=case.does,
        state=job.state,
        outcome=job.outcome,
        attempts=job.attempt,
        failures=job.failures,
        crashes=job.crashes,
        signal=last.signal if last else None,
        exit_code=last.exit_code if last else None,
        reason=job.reason,
        peak_rss_bytes=max([job.peak_rss_bytes or 0, *peaks]) or None,
        contained=job.state is case.state
        and job.failures == case.failures
        and job.outcome is case.outcome
        and all(attempt.outcome is case.outcome for attempt in own),
    )


def problems(
    found: Tally, *, expected_jobs: int, resumed: bool, left: Sequence[int]
) -> list[str]:
    """Return what is not as it must be, in words; empty: all is well.

    Args:
        found: the figures.
        expected_jobs: how many jobs were stored.
        resumed: an earlier supervisor may have died over honest jobs.
        left: processes that still run.
    """
    honest = found.honest
    said = []
    jobs = honest.jobs + len(found.hostile)
    if jobs != expected_jobs or found.unknown:
        said.append(
            f"{expected_jobs} jobs were stored, but {jobs} of them and "
            f"{found.unknown} others are there"
        )
    if honest.succeeded != honest.jobs:
        said.append(f"{honest.jobs - honest.succeeded} honest jobs did not succeed")
    if honest.blamed:
        said.append(f"{honest.blamed} honest jobs were blamed")
    if honest.recovered and not resumed:
        said.append(f"{honest.recovered} honest jobs needed a second attempt")
    said += [
        f"{item.kind} (job {item.id}) ended {item.state}, {item.outcome}, after "
        f"{item.failures} failures"
        for item in found.hostile
        if not item.contained
    ]
    if left:
        said.append(f"processes are left: {', '.join(map(str, left))}")
    return said
