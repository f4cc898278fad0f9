"""Outcome: every way in which an attempt can end, and what each one costs.

This table is the only place that says what an outcome is charged to.
`lifecycle.account` reads it; nothing else assigns blame.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """How an attempt ended, as stored and shown."""

    SUCCEEDED = "succeeded"
    """The handler returned and its result was accepted."""
    FAILED = "failed"
    """The handler raised, or its result could not be stored."""
    TIMED_OUT = "timed_out"
    """Killed at its hard time limit, or ended by its soft one."""
    STALLED = "stalled"
    """Killed because it was silent for longer than its heartbeat timeout."""
    OUT_OF_MEMORY = "out_of_memory"
    """Killed at its memory limit, or refused memory beyond it."""
    CRASHED = "crashed"
    """Its process died (signal or exit) without a valid result."""
    INTERRUPTED = "interrupted"
    """Ended by jobpool, the operator or the host; not the job's doing."""
    LOST = "lost"
    """Its end was not seen: its supervisor or host died."""
    CANCELED = "canceled"
    """An operator or the application canceled it while it ran."""


class Charge(NamedTuple):
    """What one outcome spends of the job's budgets."""

    failure: bool = False
    """An attempt of ``max_attempts``."""
    crash: bool = False
    """A crash of ``max_crashes`` within ``crash_window``."""
    interruption: bool = False
    """An interruption of ``INTERRUPTIONS_MAX``."""
    recovery: bool = False
    """A recovery of ``max_lost``."""
    end_unknown: bool = False
    """The handler may have done some of its work: with ``rerun="never"`` it is dead."""


CHARGES: Mapping[Outcome, Charge] = {
    Outcome.SUCCEEDED: Charge(),
    Outcome.FAILED: Charge(failure=True),
    Outcome.TIMED_OUT: Charge(failure=True, end_unknown=True),
    Outcome.STALLED: Charge(failure=True, end_unknown=True),
    Outcome.OUT_OF_MEMORY: Charge(failure=True, crash=True, end_unknown=True),
    Outcome.CRASHED: Charge(failure=True, crash=True, end_unknown=True),
    Outcome.INTERRUPTED: Charge(interruption=True, end_unknown=True),
    Outcome.LOST: Charge(recovery=True, end_unknown=True),
    Outcome.CANCELED: Charge(),
}
