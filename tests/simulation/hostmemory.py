"""A host's memory in virtual time, and what the guard of it must do.

The looks, the machine's gate and its interruptions are the real ones. What is judged
here is counted anew: by what the last look said, and by what this supervisor runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobpool.sandbox.cgroups.memory_left import Left
from jobpool.sandbox.protocol.verdict import KillReason
from jobpool.supervisor.machine.state.slot import Slot, SlotState
from jobpool.supervisor.processes.host_memory import HostMemory

if TYPE_CHECKING:
    from simulation.host import Host
    from simulation.shell import SimReactor

MIB = 2**20
TOTAL_BYTES = 8192 * MIB
FREE_BYTES = 4096 * MIB
"""What other programs leave where nothing is wrong."""
RESERVE_BYTES = TOTAL_BYTES // 20
"""As the manual has it: 5 %."""
LOOKS_MAX = 1000
"""With too little left at so many looks in a row, somebody must have been killed."""


class Memory:
    """The memory of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._others_bytes = TOTAL_BYTES - FREE_BYTES

    def left(self) -> Left:
        """Look at it."""
        trees = [t for run in self._host.runs.values() for t in run.trees if t.alive]
        used_bytes = self._others_bytes + sum(tree.rss_bytes for tree in trees)
        return Left(max(0, TOTAL_BYTES - used_bytes), TOTAL_BYTES)

    def fall(self, share: float) -> None:
        """Let other programs take all of it but a share of the reserve."""
        least_bytes = int(share * RESERVE_BYTES)
        self._others_bytes += max(0, self.left().available_bytes - least_bytes)

    def recover(self) -> None:
        """Let them give it back."""
        self._others_bytes = TOTAL_BYTES - FREE_BYTES


class GuardedMemory:
    """A supervisor's looks at its host's memory, and whether it minds them.

    Args:
        host: whose memory.
        reactor: takes what the machine is to hear.
        slots: the machine's.
    """

    def __init__(self, host: Host, reactor: SimReactor, slots: Sequence[Slot]) -> None:
        self._host = host
        self._reactor = reactor
        self._slots = slots
        self._last: Left | None = None
        self._known_s = 0.0
        """When the machine was told."""
        self._hungry = 0
        """Looks in a row with too little left, and somebody who may be interrupted."""
        self._looks = HostMemory(
            self._look, lambda: None, is_busy=self._is_busy, report=reactor.feed
        )

    @property
    def next_s(self) -> float:
        """When to look next."""
        return self._looks.next_s

    def begin(self, now_s: float) -> None:
        """An attempt begins."""
        if self._host.world.plan.little_memory:
            self._looks.begin(now_s)

    def check(self, now_s: float) -> None:
        """Look, if that is due."""
        self._looks.check(now_s)

    def _is_busy(self) -> bool:
        return any(slot.queue for slot in self._slots)

    def _look(self) -> Left:
        left = self._last = self._host.memory.left()
        self._known_s = self._reactor.kernel.now_s
        may_go = [
            slot
            for slot in self._slots
            if slot.state is SlotState.BUSY and slot.queue and not _is_once(slot)
        ]
        is_hungry = left.available_bytes < RESERVE_BYTES // 2 and len(may_go) > 1
        self._hungry = self._hungry + 1 if is_hungry else 0
        if self._hungry == LOOKS_MAX:
            self._broken("the host has nothing left, and nobody is interrupted")
        return left

    # -- what must hold ----------------------------------------------------------------

    def assigned(self, number: int, jobs: int) -> None:
        """A child was given jobs: none where others run while the host is short."""
        now_s, left = self._reactor.kernel.now_s, self._last
        if left is None or now_s <= self._known_s or not self._is_busy():
            return
        others = [slot for slot in self._slots if slot.queue and slot.number != number]
        if left.available_bytes < RESERVE_BYTES and (others or jobs > 1):
            self._broken(f"something began with {left.available_bytes} bytes left")

    def killed(self, number: int) -> str:
        """A child is killed: return what its attempt's end is to be called."""
        slot = self._slots[number]
        kill = slot.killed
        if kill is None or kill.reason is not KillReason.HOST_MEMORY:
            return "supervisor"
        left = self._last
        if left is None or left.available_bytes >= RESERVE_BYTES // 2:
            self._broken("somebody was interrupted while there was memory")
        if not any(other.queue for other in self._slots if other is not slot):
            self._broken("the only one was interrupted")
        if _is_once(slot):
            self._broken("one that must not run again was interrupted")
        self._host.world.sometimes["an attempt was interrupted for the host"] += 1
        return "host memory"

    def _broken(self, text: str) -> None:
        self._host.world.history.broken.append(text)


def _is_once(slot: Slot) -> bool:
    return any(job.lease.kind.endswith(".once") for job in slot.queue)
