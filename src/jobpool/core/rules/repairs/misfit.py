"""Misfits: jobs whose stored arguments do not fit their handler. Pure.

During a rolling deploy two versions of an application have one kind with different
arguments, and only a child can tell whether a job's arguments fit. A supervisor whose
child finds that they do not hands the job back uncharged, and leaves it to supervisors
with another version. If there is none, or all have tried, the job waits until a
supervisor with yet another version starts, or until `unknown_for` has passed since the
first of them tried. Then it is tried once more, and if that fails it is dead, with the
reason.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import Settlement
from jobpool.core.rules.lifecycle import hand_on

_WAITS = "waits for a supervisor that has another version of its kind"


class Knowledge(NamedTuple):
    """What a store knows when a job's arguments did not fit."""

    schema_digest: str | None
    """Version of the kind at the supervisor that tried; None: not published."""
    since_ms: int | None
    """When the first supervisor tried before this one, if any."""
    is_elsewhere: bool
    """A living supervisor has another version of the kind, and has not tried."""


class Wait(NamedTuple):
    """The job is handed back."""

    settlement: Settlement
    """Written instead of the one that makes the job dead."""
    since_ms: int
    """The supervisor does not lease it again from here…"""
    until_ms: int
    """…until here."""


def wait_for(as_dead: Settlement, known: Knowledge, now_ms: int) -> Wait | None:
    """Decide whether a misfit waits or is dead (None).

    Args:
        as_dead: the settlement that makes it dead.
        known: what the store knows.
        now_ms: the store's clock.
    """
    if as_dead.unknown_for_ms is None or known.schema_digest is None:
        return None
    since_ms = now_ms if known.since_ms is None else min(known.since_ms, now_ms)
    if known.is_elsewhere:
        since_ms = now_ms
    until_ms = since_ms + as_dead.unknown_for_ms
    if until_ms <= now_ms:
        return None
    reason = "; ".join(filter(None, (as_dead.evidence.reason, _WAITS)))
    settlement = hand_on(as_dead, 0 if known.is_elsewhere else until_ms - now_ms)
    evidence = msgspec.structs.replace(settlement.evidence, reason=reason)
    settlement = msgspec.structs.replace(settlement, evidence=evidence)
    return Wait(settlement, since_ms, until_ms)
