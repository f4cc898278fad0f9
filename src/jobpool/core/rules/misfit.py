"""What becomes of a job whose stored arguments do not fit its handler. Pure.

During a rolling deploy two applications know one kind by different arguments, and only
a child can tell whether a job's fit. So whoever finds that they do not hands the job
back uncharged, and leaves it to the supervisors that know the kind otherwise. When
there is none, or all have tried, the job waits: until one begins that knows the kind
otherwise again, or for `unknown_for` since the first of them has tried. Then it is
tried once more, and is dead with the reason that is found.
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
    """By what the supervisor that has tried knows the kind; None: it has not said."""
    since_ms: int | None
    """When the first of those that have tried before did, if any."""
    is_elsewhere: bool
    """A living supervisor knows the kind otherwise, and has not tried."""


class Wait(NamedTuple):
    """The job is handed back."""

    settlement: Settlement
    """To be written in the place of its burial."""
    since_ms: int
    """The supervisor does not take it again from here…"""
    until_ms: int
    """…to here."""


def wait_for(burial: Settlement, known: Knowledge, now_ms: int) -> Wait | None:
    """Decide whether a job is buried; None: it is.

    Args:
        burial: its settlement if it is.
        known: what the store knows.
        now_ms: the store's clock.
    """
    if burial.unknown_for_ms is None or known.schema_digest is None:
        return None
    since_ms = now_ms if known.since_ms is None else min(known.since_ms, now_ms)
    if known.is_elsewhere:
        since_ms = now_ms
    until_ms = since_ms + burial.unknown_for_ms
    if until_ms <= now_ms:
        return None
    reason = "; ".join(filter(None, (burial.evidence.reason, _WAITS)))
    settlement = hand_on(burial, 0 if known.is_elsewhere else until_ms - now_ms)
    evidence = msgspec.structs.replace(settlement.evidence, reason=reason)
    settlement = msgspec.structs.replace(settlement, evidence=evidence)
    return Wait(settlement, since_ms, until_ms)
