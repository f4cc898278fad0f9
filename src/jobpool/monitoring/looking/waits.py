"""What a job that has not ended waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobpool.core.jobs.budget import attempt_words
from jobpool.core.jobs.flow import EXTERNAL
from jobpool.core.jobs.job import Job, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.circuit_breaker import BreakerState
from jobpool.core.rules.quotas.definition import TENANT
from jobpool.core.rules.usage.tuning import next_bytes
from jobpool.core.units import show_size
from jobpool.monitoring.looking.presence import why_silent
from jobpool.store.protocol import Store
from jobpool.store.records.flows import FlowRow
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.quotas import QuotaWait
from jobpool.store.records.runs import KindRecord
from jobpool.words.figures import ago, seconds
from jobpool.words.jobs.values import running_s
from jobpool.words.pauses import pause_words
from jobpool.words.quotas import named

STRAY = "what it waits for is not there, since another program has damaged its row"
_NEXT = {
    JobState.WAITING: "runs when what it depends on has ended",
    JobState.RUNNABLE: "runs as soon as a slot of its pool is free",
}


def what_next(
    job: Job, known: KindRecord | None, flow: FlowRow | None, now: int
) -> str:
    """Return what happens to a job next, as far as nothing keeps it from running.

    Args:
        job: the job.
        known: its kind.
        flow: of which it is a member.
        now: in milliseconds.
    """
    match job.state:
        case JobState.PENDING:
            return _next_try(job, known, now)
        case JobState.LEASED:
            wish = "; cancellation requested" if job.cancel_requested else ""
            ran = seconds(running_s(job, now))
            return f"{f'has run for {ran}' if ran else 'has just begun'}{wish}"
        case _ if job.replaced_by is not None:
            return ""
        case JobState.QUARANTINED | JobState.DEAD:
            return f"nothing, until{_mended(job, known, flow)}"
        case _:
            return _otherwise(job, flow)


def _mended(job: Job, known: KindRecord | None, flow: FlowRow | None) -> str:
    """Return what lets a job go on that has ended badly."""
    if flow is not None:
        which = f" --job {job.id}" if flow.finished_at_ms is None else ""
        return f" its flow is retried: jobpool flows retry {flow.id}{which}"
    limit_bytes = job.memory_bytes or (known.memory_bytes if known else None)
    if job.outcome is Outcome.OUT_OF_MEMORY and limit_bytes is not None:
        more = show_size(next_bytes(limit_bytes))
        return f": jobpool release {job.id} --memory {more}"
    command = "release" if job.state is JobState.QUARANTINED else "retry"
    return f": jobpool {command} {job.id}"


def _otherwise(job: Job, flow: FlowRow | None) -> str:
    if job.follows is None:
        if job.state is JobState.WAITING and flow is None:
            return f"nothing: {STRAY}; jobpool cancel {job.id}"
        if job.state is JobState.WAITING and job.kind.startswith(EXTERNAL):
            return f"ends when somebody says so: jobpool flows approve {job.id}"
        return _NEXT.get(job.state, "")
    return f"runs when job {job.follows} has ended, which has its unique text"


def _next_try(job: Job, known: KindRecord | None, now: int) -> str:
    """Return when it is tried again, and what one more crash would mean."""
    when = ago(job.run_at_ms, now) or ""
    if job.run_at_ms <= now:
        when = f"as soon as a slot of its pool is free (due {when})"
    if not job.attempt:
        return f"runs {when}"
    last = known is not None and job.crashes and job.crashes + 1 >= known.max_crashes
    danger = "; one more crash quarantines it" if last else ""
    return f"{attempt_words(job.attempt + 1)} {when}{danger}"


def why_it_waits(
    store: Store,
    job: Job,
    known: KindRecord | None,
    quotas: Sequence[QuotaWait],
    now: int,
) -> str:
    """Return what keeps a waiting job from running, if anything does.

    Args:
        store: where it is.
        job: as stored.
        known: its kind.
        quotas: buckets that have no permit for it.
        now: in milliseconds.
    """
    if job.state not in (JobState.PENDING, JobState.RUNNABLE):
        return ""
    pauses = store.pauses()
    reasons = [
        f"{f'{one.what} {one.name}' if one.name else 'the whole store'} is paused"
        + (f" ({pause_words(one, now)})" if one.who else "")
        for one in pauses
        if (one.what, one.name) in _pausable(job, known)
    ]
    if any(one.id == job.id for one in store.suspects()):
        reasons.append(
            "it is a suspect (it was running when its supervisor or host died) and "
            "runs alone when its turn comes"
        )
    reasons += [
        f"kind {one.kind} is {one.state}: {one.crashes} different jobs crashed in a "
        f"row; next try in {seconds(one.wait_s)}, or at once: jobpool resume --kind "
        f"{one.kind}"
        for one in store.breakers()
        if one.kind == job.kind and one.state is not BreakerState.CLOSED
    ]
    if job.unfit_since_ms is not None:
        reasons.append(_unfit(job, now))
    if short := [one for one in quotas if not _is_paused(one, pauses)]:
        names = " and ".join(named(one.quota, one.value) for one in short)
        reasons.append(f"{names} {'has' if len(short) == 1 else 'have'} no permit")
    if known is None:
        reasons.append(
            "no supervisor has ever known this kind: start one whose --app imports the "
            "module that declares it"
        )
    if not reasons and job.run_at_ms <= now and not _is_served(store, job.pool, now):
        reasons.append(
            f"no supervisor serves pool {job.pool}; start one: jobpool --pools "
            f"{job.pool}=N"
        )
    if not reasons and job.state is JobState.RUNNABLE and known and known.needs:
        reasons += _of_hosts(store, known)
    return ", ".join(reasons)


def _is_paused(wait: QuotaWait, pauses: Sequence[PauseRow]) -> bool:
    """Say whether a pause, which is named already, is all that closes a bucket."""
    meant = (wait.quota, wait.value) if wait.quota == TENANT else ("quota", wait.quota)
    return any((one.what, one.name) == meant for one in pauses)


def _of_hosts(store: Store, known: KindRecord) -> Iterator[str]:
    """Yield the quotas of a kind of which each host knows its own use alone."""
    needs = {need.quota for need in known.needs}
    for row in store.quotas():
        if row.name in needs and row.quota is not None and row.quota.host_only:
            yield (
                f"for a slot of its pool and a permit of quota {row.name}, which each "
                "host counts by itself"
            )


def _pausable(job: Job, known: KindRecord | None) -> set[tuple[str, str | None]]:
    """Return what holds a job up if it is paused."""
    needs = known.needs if known else ()
    return {
        ("pool", job.pool),
        ("kind", job.kind),
        ("tenant", job.tenant),
        ("store", ""),
        *(("quota", need.quota) for need in needs),
    }


def _is_served(store: Store, pool: str, now: int) -> bool:
    return any(
        pool in run.pools and not why_silent(store.run_root, run, now)
        for run in store.open_runs()
    )


def _unfit(job: Job, now: int) -> str:
    """Return what a job waits for whose arguments did not fit a live handler."""
    if job.state is JobState.RUNNABLE:
        return (
            "its arguments did not fit a live supervisor's handler; it waits for one "
            "that has another version of its kind"
        )
    return (
        "its arguments do not fit the handler of any live supervisor; dead "
        f"{ago(job.run_at_ms, now)} unless one with another version starts"
    )
