"""The events that the machine reports; their sentences are the log's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobpool.core.application.codec import is_encoded
from jobpool.core.config.settings import Settings
from jobpool.core.config.store_url import without_password
from jobpool.core.events.event import Event
from jobpool.core.events.figures import AttemptsSucceeded
from jobpool.core.events.jobs import (
    JobDead,
    JobEnded,
    JobOutput,
    JobQuarantined,
    JobSnoozed,
    JobSucceeded,
    JobUnfit,
)
from jobpool.core.events.supervisor import Alarm, IsolationReduced, SupervisorReady
from jobpool.core.isolation.cgroups import Controls
from jobpool.core.jobs.application_frame import own_frame
from jobpool.core.jobs.job import Evidence, JobState, Lease, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.limits import Effective
from jobpool.core.safe_text import message_line
from jobpool.core.units import show_duration
from jobpool.errors import JobpoolBug
from jobpool.sandbox.protocol.verdict import signal_name
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine.inputs import ChildExited
from jobpool.supervisor.machine.state.slot import Assigned

OUTPUT_LINES_MAX = 200
"""Most lines logged of one attempt's output; the others are counted."""


def supervisor_ready(
    at_ms: int, run: Run, settings: Settings, controls: Controls
) -> Event:
    """Every zygote is up."""
    return SupervisorReady(
        at_ms=at_ms,
        pid=run.pid,
        run_id=run.id,
        pools=run.pools,
        store=without_password(settings.store),
        app=settings.app,
        version=run.version,
        cgroup=controls.in_force,
        cgroup_missing=dict(controls.missing),
    )


def attempt_succeeded(
    at_ms: int, job: Assigned, slot_name: str, evidence: Evidence
) -> Event:
    """A handler has returned."""
    lease = job.lease
    return JobSucceeded(
        at_ms=at_ms,
        id=lease.id,
        kind=lease.kind,
        slot=slot_name,
        attempt=lease.attempt,
        max_attempts=lease.max_attempts or job.policy.max_attempts,
        duration_s=evidence.duration_s,
        peak_rss_bytes=evidence.peak_rss_bytes,
    )


def waited_s(job: Assigned, began_s: float) -> float:
    """Return how long an attempt has waited from when it was due until it began.

    Args:
        job: the attempt.
        began_s: when it began, by the clock of `Assigned.leased_s`.
    """
    lease = job.lease
    before_ms = lease.leased_at_ms - lease.due_ms if lease.due_ms else 0
    return max(0.0, before_ms / 1000 + began_s - job.leased_s)


def attempt_ended(
    at_ms: int,
    job: Assigned,
    slot_name: str,
    settlement: Settlement,
    *,
    counts: bool = False,
) -> Iterator[Event]:
    """Yield the events of an attempt's end; *counts*: its figures as well."""
    lease, evidence = job.lease, settlement.evidence
    budget = lease.max_attempts or job.policy.max_attempts
    if settlement.outcome is Outcome.SUCCEEDED:
        yield attempt_succeeded(at_ms, job, slot_name, evidence)
        if counts:
            yield AttemptsSucceeded(
                at_ms=at_ms,
                kind=lease.kind,
                pool=slot_name.partition("/")[0],
                durations_s=(evidence.duration_s or 0.0,),
                waits_s=(waited_s(job, job.started_s or job.leased_s),),
                peaks_bytes=(evidence.peak_rss_bytes or 0,),
                attempts=(lease.attempt,),
            )
        return
    if settlement.snoozed:
        yield JobSnoozed(
            at_ms=at_ms,
            id=lease.id,
            kind=lease.kind,
            slot=slot_name,
            attempt=lease.attempt,
            snoozes=lease.snoozes + 1,
            delay_s=settlement.delay_ms / 1000,
            reason=evidence.reason,
        )
    if settlement.outcome is None:
        return
    facts = _about_failure(lease, settlement, job.limits)
    yield _ended(at_ms, lease, settlement, facts, slot=slot_name, budget=budget)
    yield from _set_aside(at_ms, settlement, facts)


def job_unfit(
    at_ms: int, job: Assigned, slot_name: str, settlement: Settlement
) -> Event:
    """A job's arguments did not fit the handler: it is left to other supervisors."""
    lease = job.lease
    return JobUnfit(
        at_ms=at_ms,
        id=lease.id,
        kind=lease.kind,
        slot=slot_name,
        unknown_for_s=(settlement.unknown_for_ms or 0) / 1000,
        reason=settlement.evidence.reason,
    )


def attempt_lost(at_ms: int, lease: Lease, settlement: Settlement) -> Iterator[Event]:
    """Yield the events of an attempt that ended with its supervisor."""
    facts = _about_failure(lease, settlement, None)
    yield _ended(at_ms, lease, settlement, facts)
    yield from _set_aside(at_ms, settlement, facts)


def _ended(
    at_ms: int,
    lease: Lease,
    settlement: Settlement,
    facts: Mapping[str, Any],
    *,
    slot: str | None = None,
    budget: int | None = None,
) -> JobEnded:
    again = settlement.state is JobState.PENDING
    return JobEnded(
        at_ms=at_ms,
        **facts,
        slot=slot,
        state=settlement.state,
        max_attempts=budget or lease.max_attempts,
        spent=settlement.spent,
        counters_reset=lease.was_revived,
        delay_s=settlement.delay_ms / 1000 if again else None,
        duration_s=settlement.evidence.duration_s,
        peak_rss_bytes=settlement.evidence.peak_rss_bytes,
    )


def _set_aside(
    at_ms: int, settlement: Settlement, facts: Mapping[str, Any]
) -> Iterator[Event]:
    if settlement.state is JobState.QUARANTINED:
        yield JobQuarantined(at_ms=at_ms, **facts)
    elif settlement.state is JobState.DEAD:
        yield JobDead(at_ms=at_ms, **facts)


def _about_failure(
    lease: Lease, settlement: Settlement, limits: Effective | None
) -> dict[str, Any]:
    """Return the fields of a `JobFailure`; *limits* are the attempt's."""
    evidence = settlement.evidence
    error = evidence.error
    if lease.codec is not None and is_encoded(error):
        error = None
    return {
        "id": lease.id,
        "kind": lease.kind,
        "attempt": lease.attempt,
        "outcome": settlement.outcome,
        "reason": evidence.reason,
        "error_class": evidence.error_class,
        "error": None if error is None else message_line(error),
        "frame": own_frame(evidence.traceback, evidence.stack),
        "key": lease.key,
        "tenant": lease.tenant,
        "timeout_s": limits.timeout_s if limits else lease.timeout_s,
        "memory_bytes": limits.memory_bytes if limits else lease.memory_bytes,
    }


def job_output(
    at_ms: int, lease: Lease, slot_name: str, output: str
) -> Iterator[Event]:
    """Yield a handler's output, line by line."""
    lines = output.splitlines()
    shown = lines[-OUTPUT_LINES_MAX:]
    if len(lines) > len(shown):
        shown.insert(0, f"[… {len(lines) - len(shown)} lines before]")
    for line in shown:
        yield JobOutput(
            at_ms=at_ms, id=lease.id, kind=lease.kind, slot=slot_name, line=line
        )


def child_not_started(
    at_ms: int, slot_name: str, message: str, pause_s: float
) -> Event:
    """A child could not be started; no job is to blame."""
    return Alarm(
        at_ms=at_ms,
        text=f"{slot_name}: no child could be started: {message}; "
        f"trying again in {show_duration(pause_s)}",
    )


def not_enclosed(at_ms: int, pool: str, error: OSError) -> Event:
    """No cgroup could be made for a child, although the run has one."""
    return IsolationReduced(
        at_ms=at_ms,
        pools=(pool,),
        measure="cgroup",
        stops="using memory and processes beyond the bounds of a cgroup",
        why=f"a cgroup for the child cannot be made: {error.strerror}",
    )


def child_stuck(at_ms: int, slot_name: str, late_s: float) -> Event:
    """SIGKILL did not end a child."""
    return Alarm(
        at_ms=at_ms,
        text=f"{slot_name}: its child is still there {show_duration(late_s)} after "
        "SIGKILL; it is probably waiting for a disk or a network file system. Its "
        "job stays leased and its slot unusable until the kernel lets it end",
    )


def protocol_broken(at_ms: int, slot_name: str, message: str) -> Event:
    """A child broke the protocol."""
    return Alarm(at_ms=at_ms, text=f"{slot_name}: its child sent {message}")


def child_not_idle(at_ms: int, slot_name: str, what: str) -> Event:
    """A child without a job is active; no job is charged for that."""
    return Alarm(
        at_ms=at_ms,
        text=f"{slot_name}: its child, which should wait for a job, {what}; it is "
        "replaced. It was stopped, or a thread of native code works on, or a handler "
        "has declared its own end and goes on",
    )


def oom_score_raised(at_ms: int, pid: int) -> Event:
    """The kernel would have killed it first if memory had run out."""
    return Alarm(
        at_ms=at_ms,
        text=f"something, most likely a handler, has raised the oom_score_adj of pid "
        f"{pid}, which is this supervisor or one of its zygotes; it was restored",
    )


def idle_child_ended(at_ms: int, slot_name: str, how: str) -> Event:
    """A child died between jobs; nobody is to blame."""
    return Alarm(at_ms=at_ms, text=f"{slot_name}: its idle child ended ({how})")


def exit_words(exited: object) -> str:
    """Return how a child's process ended, in words."""
    if not isinstance(exited, ChildExited):
        raise JobpoolBug(f"an exit came with {type(exited).__name__}; please report")
    if exited.exit.signal is not None:
        return signal_name(exited.exit.signal)
    return f"exit code {exited.exit.exit_code}"
