"""The verdict: turns the evidence of an attempt's end into its `Ending`; pure.

Precedence: a complete result that the child sent beats everything that happened to it
later; then comes our own reason for killing it, recorded before the signal was sent;
then the host's; whatever is left is the attempt's own crash.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from jobpool.core.application.codec import is_encoded
from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.memory_trail import Trail, trail_json
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending
from jobpool.core.safe_text import message_line
from jobpool.core.units import show_duration, show_size
from jobpool.sandbox.protocol.messages import Done, Raised


class KillReason(StrEnum):
    """Why we killed a child; recorded before the signal is sent."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    PROCESSES = "processes"
    STALLED = "stalled"
    CANCELED = "canceled"
    STOPPED = "stopped"
    """The supervisor ends it: a stop, a drain out of time, a lost lease."""
    RECYCLED = "recycled"
    """It left something behind after its attempt had ended."""
    BESIDE = "beside"
    """The attempt before it ended their child."""
    HOST_MEMORY = "host_memory"
    """The host ran short of memory, and it began last."""
    UNMARKED = "unmarked"
    """Its child ended, perhaps before it began."""
    PROTOCOL = "protocol"
    """It sent something other than our messages."""


class Kill(msgspec.Struct, frozen=True):
    """A kill of ours, with the figures that led to it."""

    reason: KillReason
    detail: str = ""
    limit: float = 0.0
    """The limit that was passed: seconds, bytes for memory, or processes."""
    seen: float = 0.0
    """The figure that exceeded it, if there is one."""


class MemoryEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The out-of-memory events in a child's cgroup (memory.events)."""

    oom: int = 0
    """How often its own ``memory.max`` could not be kept."""
    oom_kills: int = 0
    """How many processes in it were killed, whichever limit was reached."""
    max_bytes: int = 0
    """Its ``memory.max``."""
    peak_bytes: int = 0
    """Its ``memory.peak``; 0: this kernel has none."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended, as the kernel reported to its parent.

    One of exit code and signal is set; neither, if the status was reaped elsewhere.
    """

    exit_code: int | None = None
    signal: int | None = None
    max_rss_bytes: int = 0
    cpu_s: float = 0.0
    memory_events: MemoryEvents | None = None
    """Its cgroup's; None: it had none that counts memory."""


FAULT_SIGNALS = frozenset(
    getattr(signal, name)
    for name in (
        *("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP"),
    )
    if hasattr(signal, name)  # tests judge on platforms that lack some
)
"""A program causes these itself, whatever else happens on the host."""

_TRAILED = frozenset(
    {Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT, Outcome.STALLED, Outcome.CRASHED}
)
"""Ends for which its memory over time may say why."""

NOT_COMMITTED = "complete() was called, but its transaction was never committed"

OUTCOME_OF_KILL: Mapping[KillReason, Outcome] = {
    KillReason.TIMEOUT: Outcome.TIMED_OUT,
    KillReason.MEMORY: Outcome.OUT_OF_MEMORY,
    KillReason.PROCESSES: Outcome.CRASHED,
    KillReason.STALLED: Outcome.STALLED,
    KillReason.CANCELED: Outcome.CANCELED,
    KillReason.STOPPED: Outcome.INTERRUPTED,
    KillReason.RECYCLED: Outcome.INTERRUPTED,
    KillReason.BESIDE: Outcome.INTERRUPTED,
    KillReason.HOST_MEMORY: Outcome.INTERRUPTED,
    KillReason.UNMARKED: Outcome.INTERRUPTED,
    KillReason.PROTOCOL: Outcome.CRASHED,
}

_WITHOUT_FIGURES: Mapping[KillReason, str] = {
    KillReason.CANCELED: "killed because it was canceled",
    KillReason.STOPPED: "killed because jobpool stopped",
    KillReason.RECYCLED: "killed with what it left behind",
    KillReason.BESIDE: "killed with the attempt before it, in the same child",
    KillReason.UNMARKED: "its child ended, and no mark says that it had begun",
    KillReason.PROTOCOL: "killed because it sent what no child of jobpool sends",
}


def verdict_of_done(done: Done, slot: str, *, encoded: bool = False) -> Ending:
    """Judge an attempt by its child's message at its end.

    If it called `complete`, it is judged as if its transaction had not been committed:
    if it was, the store knows and ignores this ending.

    Args:
        done: the child's message, its sequence number and token checked.
        slot: the slot's name, for the evidence.
        encoded: its job's data is encoded: an encoded message is in no reason.
    """
    error = done.error
    evidence = Evidence(
        reason=_reason_of_done(done, encoded=encoded),
        error_class=error.classes[0] if error and error.classes else None,
        error=error.message if error else None,
        traceback=error.traceback if error else None,
        peak_rss_bytes=done.peak_rss_bytes,
        cpu_s=done.cpu_s,
        duration_s=done.duration_s,
        output=_text(done.output),
        slot=slot,
    )
    if done.ok and not done.completed:
        return Ending(outcome=Outcome.SUCCEEDED, evidence=evidence, result=done.result)
    return Ending(
        outcome=_outcome_of_error(error),
        evidence=evidence,
        error_classes=tuple(error.classes) if error else (),
        give_up=error is not None and error.give_up,
        retry_in_s=error.retry_in_s if error else None,
        snooze_s=error.snooze_s if error else None,
        misfit=error is not None and error.misfit,
        throttled=error.throttled if error else None,
    )


def _outcome_of_error(error: Raised | None) -> Outcome:
    if error is not None and error.soft_timeout:
        return Outcome.TIMED_OUT
    if error is not None and error.out_of_memory:
        return Outcome.OUT_OF_MEMORY
    return Outcome.FAILED


def is_plain_success(done: Done) -> bool:
    """Say whether a child reports only a result."""
    return done.ok and not (
        done.completed
        or done.surprise
        or done.output
        or done.error
        or done.added
        or done.reports
    )


def evidence_of_success(done: Done, slot: str) -> Evidence:
    """Return the evidence of a plain success, as `verdict_of_done` finds it."""
    return Evidence(
        peak_rss_bytes=done.peak_rss_bytes,
        cpu_s=done.cpu_s,
        duration_s=done.duration_s,
        slot=slot,
    )


def verdict_of_death(
    exited: Exit,
    *,
    kill: Kill | None,
    done: Done | None,
    slot: str,
    duration_s: float,
    peak_rss_bytes: int = 0,
    memory_trail: Trail | None = None,
    output: bytes = b"",
    stack: str = "",
    processes: Sequence[str] = (),
    cpu_before_s: float = 0.0,
    host_oom: bool = False,
    stopping: bool = False,
    encoded: bool = False,
) -> Ending:
    """Judge an attempt whose child is dead.

    Args:
        exited: how the child's process ended.
        kill: our own kill, if we killed it.
        done: its complete last message about this attempt, if there was one.
        slot: the slot's name, for the evidence.
        duration_s: how long the attempt ran, as we measured.
        peak_rss_bytes: the highest memory of its tree that we measured.
        memory_trail: the same over time.
        output: the tail of what it wrote.
        stack: what its fault handler wrote.
        processes: what was below it just before our kill.
        cpu_before_s: processor time of earlier attempts in the same child.
        host_oom: the kernel's count of out-of-memory kills rose meanwhile.
        stopping: the supervisor is stopping, so that its whole process group may be
            being killed.
        encoded: its job's data is encoded, which only its child could do: what it
            wrote, and the command lines of its processes, are not kept. The stack is:
            it names code, not data.
    """
    if done is not None:
        return verdict_of_done(done, slot, encoded=encoded)
    outcome, reason = _cause(exited, kill, host_oom=host_oom, stopping=stopping)
    return Ending(
        outcome=outcome,
        for_host_memory=kill is not None and kill.reason is KillReason.HOST_MEMORY,
        evidence=Evidence(
            reason=reason,
            signal=exited.signal,
            exit_code=exited.exit_code,
            # The kernel's figure covers the child's whole life, ours this attempt;
            # only for a child that died is the kernel's the better one.
            peak_rss_bytes=max(peak_rss_bytes, exited.max_rss_bytes),
            cpu_s=max(0.0, exited.cpu_s - cpu_before_s),
            duration_s=duration_s,
            output=None if encoded else _text(output),
            stack=_stack(stack, () if encoded else processes),
            slot=slot,
            memory_trail=trail_json(memory_trail)
            if memory_trail is not None and outcome in _TRAILED
            else None,
        ),
    )


def _cause(
    exited: Exit, kill: Kill | None, *, host_oom: bool, stopping: bool
) -> tuple[Outcome, str]:
    if kill is not None:
        return OUTCOME_OF_KILL[kill.reason], reason_of_kill(kill)
    if exited.signal is None:
        how = (
            "is gone and left no exit status"
            if exited.exit_code is None
            else f"exited with {exited.exit_code} without a result"
        )
        return Outcome.CRASHED, f"its process {how}"
    name = signal_name(exited.signal)
    if exited.signal in FAULT_SIGNALS:
        return Outcome.CRASHED, f"killed by {name}"
    if exited.signal == signal.SIGKILL:
        events = exited.memory_events
        # The kernel's kills here, if they are counted; else anywhere on the host.
        wanted = host_oom if events is None else events.oom_kills > 0
        if wanted:
            return _memory_shortage(events, name)
    if stopping:
        return Outcome.INTERRUPTED, f"killed by {name} while jobpool was stopping"
    return Outcome.CRASHED, f"killed by {name}; jobpool did not send it"


def _memory_shortage(events: MemoryEvents | None, name: str) -> tuple[Outcome, str]:
    """Say whether the kernel killed for the child's memory or for the host's."""
    if events is None or not events.oom:
        return (
            Outcome.INTERRUPTED,
            f"killed by {name} while the host was out of memory",
        )
    peak = f" with {show_size(events.peak_bytes)}" if events.peak_bytes else ""
    bound = f"at the memory.max of its cgroup, {show_size(events.max_bytes)}"
    return Outcome.OUT_OF_MEMORY, f"killed by the kernel{peak} {bound}"


def reason_of_kill(kill: Kill) -> str:
    """Say in one line why we killed a child."""
    match kill.reason:
        case KillReason.TIMEOUT:
            text = f"killed at its time limit of {show_duration(kill.limit)}"
        case KillReason.MEMORY:
            text = (
                f"killed at {show_size(kill.seen)}, over its memory limit of "
                f"{show_size(kill.limit)}"
            )
        case KillReason.PROCESSES:
            text = (
                f"killed with at least {kill.seen:.0f} processes and threads, over its "
                f"limit of {kill.limit:.0f} (max_processes)"
            )
        case KillReason.HOST_MEMORY:
            text = (
                f"interrupted because the host had only {show_size(kill.seen)} of "
                f"memory left, less than the {show_size(kill.limit)} kept free for "
                "the kernel; of the attempts here it began last"
            )
        case KillReason.STALLED:
            text = f"killed after {show_duration(kill.limit)} without a heartbeat"
        case reason:
            text = _WITHOUT_FIGURES[reason]
    return f"{text}: {kill.detail}" if kill.detail else text


def signal_name(signum: int) -> str:
    """Return ``SIGSEGV (Segmentation fault)`` and the like."""
    try:
        name = signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
    return f"{name} ({signal.strsignal(signum)})"


def _reason_of_done(done: Done, *, encoded: bool) -> str | None:
    if done.ok:
        return NOT_COMMITTED if done.completed else None
    error: Raised | None = done.error
    if error is None:
        return "its child reported a failure without an error"
    if error.soft_timeout:
        return "ended by its soft time limit"
    if error.out_of_memory:
        return error.out_of_memory
    return _reason_of_error(error, encoded=encoded)


def _reason_of_error(error: Raised, *, encoded: bool) -> str:
    """Say what was raised: ``gave up: HTTP 410``, ``raised ValueError: no such page``.

    jobpool's own exceptions, such as `GiveUp`, appear without their module.
    """
    name = error.classes[0].removeprefix("jobpool.errors.") if error.classes else ""
    # An encoded text says nothing here: only the application can read it.
    hidden = encoded and is_encoded(error.message)
    if error.throttled is not None:
        words = [f"throttled by {error.throttled[0]}"] if hidden else []
    elif error.snooze_s is not None:
        words = ["not yet"]
    elif error.misfit:
        words = ["the stored arguments do not fit the handler"] if hidden else []
    elif error.give_up:
        words = ["gave up", "" if name == "GiveUp" else name]
    else:
        words = [f"raised {name or 'an exception'}"]
    message = "" if hidden else message_line(error.message)
    return ": ".join(filter(None, [*words, message]))


def _stack(stack: str, processes: Sequence[str]) -> str | None:
    """Join the stacks and the processes, which the stacks do not show."""
    below = "\n  ".join(("Processes below it:", *processes)) if processes else ""
    return "\n\n".join(filter(None, (stack.rstrip("\n"), below))) or None


def _text(output: bytes) -> str | None:
    return output.decode("utf-8", "replace") if output else None
