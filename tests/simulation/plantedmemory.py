"""Bugs of the guard of the host's memory, to plant in the simulation."""

from __future__ import annotations

from typing import Any

from jobpool.core.rules import lifecycle
from jobpool.sandbox.protocol.verdict import Kill, KillReason
from jobpool.supervisor.machine.admission import host_memory
from jobpool.supervisor.machine.admission.host_memory import HostMemoryGuard
from jobpool.supervisor.machine.state.slot import SlotState
from planted_bugs.bug import Promise
from simulation.planting import Change, breaks, nothing


@breaks(Promise.AT_MOST_ONCE)
def memory_interrupts_what_must_not_run_again() -> list[Change]:
    return [(host_memory, "_may_go", lambda slot: slot.state is SlotState.BUSY)]


@breaks(Promise.INNOCENCE)
def memory_interrupts_the_only_one() -> list[Change]:
    right = HostMemoryGuard._free

    def wrong(self: Any, available_bytes: int, least_bytes: int) -> None:
        right(self, available_bytes, least_bytes)
        running = [slot for slot in self._slots() if slot.queue]
        if len(running) == 1 and host_memory._may_go(running[0]):
            kill = Kill(KillReason.HOST_MEMORY, limit=least_bytes, seen=available_bytes)
            self._interrupt(running[0], kill)

    return [(HostMemoryGuard, "_free", wrong)]


@breaks(Promise.HARD_LIMITS)
def jobs_begin_below_the_reserve() -> list[Change]:
    return [(HostMemoryGuard, "admit", nothing)]


@breaks(Promise.HARD_LIMITS)
def nobody_is_interrupted_however_short_the_host_is() -> list[Change]:
    return [(HostMemoryGuard, "_free", nothing)]


@breaks(Promise.INNOCENCE)
def memory_interrupts_before_it_must() -> list[Change]:
    return [(host_memory, "LEAST_SHARE", 1.0)]


@breaks(Promise.INNOCENCE)
def jobs_pay_for_the_memory_of_others() -> list[Change]:
    return [(lifecycle, "_is_free", lambda _history: False)]
