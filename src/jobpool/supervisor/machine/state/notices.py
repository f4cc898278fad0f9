"""The events that the machine reports; their sentences are the log's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobpool.core.application.codec import is_encoded
from jobpool.core.config.settings import Settings
from jobpool.core.config.store_url import without_password
from jobpool.core.events.event import Event
from jobpool.core.events.figures import AttemptsSucceeded, AttemptTraced
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
from jobpool.core.jobs.trace import TraceContext, Tracer, read_trace
from jobpool.core.rules.limits import Effective
from jobpool.core.safe_text import message_line
from jobpool.core.units import show_duration
from jobpool.errors import JobpoolBug
from jobpool.sandbox.protocol.verdict import signal_name
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine.inputs import ChildExited
from jobpool.supervisor.machine.state import details
from jobpool.supervisor.machine.state.slot import Assigned
from jobpool.supervisor.machine.state.step import Step

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
        trace_id=job.trace_id,
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
    step: Step, job: Assigned, slot_name: str, settlement: Settlement
) -> Iterator[Event]:
    """Yield the events of an attempt's end."""
    at_ms, lease, evidence = step.now_ms, job.lease, settlement.evidence
    yield from _traced(step, job, slot_name, settlement)
    if step.details:
        yield from details.tick_ended(at_ms, lease, settlement, step.registry)
        yield from details.reports_left(at_ms, job.reports)
    budget = lease.max_attempts or job.policy.max_attempts
    if settlement.outcome is Outcome.SUCCEEDED:
        yield attempt_succeeded(at_ms, job, slot_name, evidence)
        if step.counts:
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
            throttles=0 if settlement.throttled is None else settlement.throttled.times,
            delay_s=settlement.delay_ms / 1000,
            reason=evidence.reason,
            trace_id=job.trace_id,
        )
    if settlement.outcome is None:
        return
    facts = _about_failure(lease, settlement, job.limits, job.trace)
    ended = _ended(at_ms, lease, settlement, facts, slot=slot_name, budget=budget)
    yield ended
    if step.details:
        yield details.unsuccessful(
            ended, lease, settlement, job.trace, reports=job.reports
        )
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


def attempt_lost(
    at_ms: int,
    lease: Lease,
    settlement: Settlement,
    tracer: Tracer | None = None,
    *,
    with_details: bool = False,
) -> Iterator[Event]:
    """Yield the events of an attempt that ended with its supervisor."""
    trace = read_trace(lease.trace)
    if tracer is not None:
        trace = tracer.of(lease.trace, lease.id, lease.token)
        if trace is not None and trace.sampled:
            times_ms = lease.leased_at_ms, max(at_ms, lease.leased_at_ms)
            waited_s = max(0, lease.leased_at_ms - (lease.due_ms or times_ms[0])) / 1000
            ns = [1_000_000 * one for one in times_ms]
            yield _span(trace, lease, settlement, (ns[0], ns[1]), waited_s=waited_s)
    facts = _about_failure(lease, settlement, None, trace)
    ended = _ended(at_ms, lease, settlement, facts)
    yield ended
    if with_details:
        yield details.unsuccessful(ended, lease, settlement, trace)
        yield from details.tick_ended(at_ms, lease, settlement, None)
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


def plain_success(
    step: Step, job: Assigned, slot_name: str, settlement: Settlement
) -> Iterator[Event]:
    """Yield the events of a success without anything else, as far as they are heard."""
    if step.reports_successes:
        yield attempt_succeeded(step.now_ms, job, slot_name, settlement.evidence)
    if step.details:
        yield from details.tick_ended(step.now_ms, job.lease, settlement, step.registry)
    yield from _traced(step, job, slot_name, settlement)


def _traced(
    step: Step, job: Assigned, slot_name: str, settlement: Settlement
) -> Iterator[Event]:
    """Yield the span of an attempt that has ended, if its trace is recorded."""
    trace, began_s = job.trace, settlement.began_s
    is_counted = settlement.outcome is not None or settlement.snoozed
    if step.tracer is None or trace is None or not trace.sampled or not is_counted:
        return
    now_ns, now_s = step.now_ms * 1_000_000, step.now_s + step.slept_s
    began_s = now_s if began_s is None else began_s
    ended_s = now_s if settlement.ended_s is None else settlement.ended_s
    times = (began_s, ended_s)
    began_ns, ended_ns = (now_ns - round(1e9 * (now_s - one)) for one in times)
    waited = waited_s(job, began_s - job.slept_s)
    yield _span(
        trace,
        job.lease,
        settlement,
        (began_ns, ended_ns),
        waited_s=waited,
        slot=slot_name,
    )


def _span(
    trace: TraceContext,
    lease: Lease,
    settlement: Settlement,
    times_ns: tuple[int, int],
    *,
    waited_s: float,
    slot: str | None = None,
) -> Event:
    evidence = settlement.evidence
    return AttemptTraced(
        at_ms=times_ns[1] // 1_000_000,
        trace=trace,
        cause=lease.trace,
        id=lease.id,
        kind=lease.kind,
        pool=lease.pool,
        slot=slot,
        attempt=lease.attempt,
        began_ns=times_ns[0],
        ended_ns=times_ns[1],
        waited_s=waited_s,
        payload_bytes=len(lease.payload),
        state=settlement.state,
        outcome=settlement.outcome,
        reason=evidence.reason,
        error_class=evidence.error_class,
        error=_error_line(lease, evidence),
        signal=evidence.signal,
        exit_code=evidence.exit_code,
        peak_rss_bytes=evidence.peak_rss_bytes,
        cpu_s=evidence.cpu_s,
    )


def _error_line(lease: Lease, evidence: Evidence) -> str | None:
    """Return an exception's message as one line; None: it is none, or encoded."""
    error = evidence.error
    if error is None or (lease.codec is not None and is_encoded(error)):
        return None
    return message_line(error)


def _about_failure(
    lease: Lease,
    settlement: Settlement,
    limits: Effective | None,
    trace: TraceContext | None,
) -> dict[str, Any]:
    """Return the fields of a `JobFailure`; *limits* are the attempt's."""
    evidence = settlement.evidence
    return {
        "id": lease.id,
        "kind": lease.kind,
        "attempt": lease.attempt,
        "outcome": settlement.outcome,
        "reason": evidence.reason,
        "error_class": evidence.error_class,
        "error": _error_line(lease, evidence),
        "frame": own_frame(evidence.traceback, evidence.stack),
        "key": lease.key,
        "tenant": lease.tenant,
        "timeout_s": limits.timeout_s if limits else lease.timeout_s,
        "memory_bytes": limits.memory_bytes if limits else lease.memory_bytes,
        "trace_id": None if trace is None else trace.trace_id,
    }


def job_output(
    at_ms: int, job: Assigned, slot_name: str, output: str
) -> Iterator[Event]:
    """Yield a handler's output, line by line."""
    lease = job.lease
    lines = output.splitlines()
    shown = lines[-OUTPUT_LINES_MAX:]
    if len(lines) > len(shown):
        shown.insert(0, f"[… {len(lines) - len(shown)} lines before]")
    for line in shown:
        yield JobOutput(
            at_ms=at_ms,
            id=lease.id,
            kind=lease.kind,
            slot=slot_name,
            line=line,
            trace_id=job.trace_id,
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
