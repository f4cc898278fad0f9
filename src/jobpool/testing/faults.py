"""Deaths on demand: what a supervisor would find, without anything dying."""

from __future__ import annotations

import signal
from enum import StrEnum

from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending
from jobpool.core.rules.limits import Effective
from jobpool.sandbox.protocol.verdict import Exit, Kill, KillReason, verdict_of_death

SLOT = "test/0"
"""Where attempts run, as their evidence has it."""
_KILLED = 9


class Fault(StrEnum):
    """How an attempt is to end, whatever its handler does."""

    KILLED = "killed"
    """Its process is killed from outside: ``crashed``."""
    SEGFAULT = "segfault"
    """A C library of it fails: ``crashed``."""
    OUT_OF_MEMORY = "out_of_memory"
    """It is killed at its memory limit."""
    TIMED_OUT = "timed_out"
    """It is killed at its time limit."""
    STALLED = "stalled"
    """It is killed because it sent no heartbeat for too long."""
    LEASE_LOST = "lease_lost"
    """Its host was gone for so long that its lease ran out: ``lost``. What it still
    does is done too late: its ``complete()`` is refused."""


def ending_of(fault: Fault, limits: Effective) -> Ending:
    """Return the end of an attempt as a supervisor would judge it.

    Args:
        fault: what happens to it.
        limits: the attempt's.
    """
    memory = limits.memory_bytes
    match fault:
        case Fault.LEASE_LOST:
            return Ending(
                outcome=Outcome.LOST,
                evidence=Evidence(reason="its lease ran out: its host was gone"),
            )
        case Fault.KILLED:
            kill, number = None, _KILLED
        case Fault.SEGFAULT:
            kill, number = None, int(signal.SIGSEGV)
        case Fault.OUT_OF_MEMORY:
            kill = Kill(KillReason.MEMORY, limit=memory, seen=memory + 2**20)
            number = _KILLED
        case Fault.TIMED_OUT:
            kill, number = Kill(KillReason.TIMEOUT, limit=limits.timeout_s), _KILLED
        case Fault.STALLED:
            silent_s = limits.heartbeat_timeout_s or limits.timeout_s
            kill, number = Kill(KillReason.STALLED, limit=silent_s), _KILLED
    return verdict_of_death(
        Exit(signal=number),
        kill=kill,
        done=None,
        slot=SLOT,
        duration_s=limits.timeout_s if fault is Fault.TIMED_OUT else 0.0,
        peak_rss_bytes=memory if fault is Fault.OUT_OF_MEMORY else 0,
    )
