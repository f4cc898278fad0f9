"""Turns a death that the host reports into the exception of its future. Pure."""

from __future__ import annotations

import signal
from pathlib import Path

from jobpool.core.jobs.budget import attempt_words
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.units import show_duration, show_size
from jobpool.errors import (
    DeathEvidence,
    JobCrashed,
    JobDied,
    JobOutOfMemory,
    JobTimedOut,
)
from jobpool.executor.wire.messages import Died

_ERRORS: dict[str, type[JobDied]] = {
    Outcome.TIMED_OUT: JobTimedOut,
    Outcome.OUT_OF_MEMORY: JobOutOfMemory,
}
"""Every other death is a crash."""
_OBVIOUS = ("; failure 1 of 1", "; never retried after timed_out")
"""Parts of a reason that say nothing about a job that is tried only once."""
_PACKAGE = Path(__file__).parents[__name__.count(".") - 1]
_OWN_FRAMES = tuple(
    f'File "{path}'
    for path in (
        _PACKAGE / "executor",
        _PACKAGE / "sandbox",
        "<string>",
    )
)
OUTPUT_SHOWN_CHARS = 2000
STACK_SHOWN_CHARS = 4000


def death_error(died: Died) -> JobDied:
    """Return the exception for a call whose process died."""
    known = died.evidence
    evidence = DeathEvidence(
        outcome=died.outcome,
        reason=known.reason or "",
        signal=None if known.signal is None else signal_name(known.signal),
        exit_code=known.exit_code,
        peak_rss_bytes=known.peak_rss_bytes,
        duration_s=known.duration_s,
        attempts=died.attempts,
        output=known.output or "",
        stack=known.stack or "",
    )
    error = _ERRORS.get(died.outcome, JobCrashed)
    return error(_described(evidence), evidence=evidence)


def _described(evidence: DeathEvidence) -> str:
    reason = evidence.reason
    for obvious in _OBVIOUS:
        reason = reason.removesuffix(obvious)
    facts = [reason or evidence.outcome]
    if evidence.duration_s is not None:
        facts.append(f"after {show_duration(evidence.duration_s)}")
    if evidence.peak_rss_bytes:
        facts.append(f"peak memory {show_size(evidence.peak_rss_bytes)}")
    if evidence.attempts > 1:
        facts.append(attempt_words(evidence.attempts))
    parts = ["; ".join(facts)]
    if evidence.output:
        tail = evidence.output[-OUTPUT_SHOWN_CHARS:].rstrip()
        parts.append(f"last output:\n{tail}")
    if stack := _without_ours(evidence.stack):
        parts.append(f"stack:\n{stack[:STACK_SHOWN_CHARS]}")
    return "\n".join(parts)


def _without_ours(stack: str) -> str:
    """Return a stack without our own frames, which are below every call."""
    lines = stack.partition("\nExtension modules:")[0].splitlines()
    kept = [line for line in lines if not line.lstrip().startswith(_OWN_FRAMES)]
    return "\n".join(kept).rstrip()


def signal_name(number: int) -> str:
    """Return a signal's name, or its number if it has none, as those of real time."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
