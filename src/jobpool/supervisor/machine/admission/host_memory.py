"""The guard of the host's memory: attempts that run together never use it up.

Theory of operation. Limits bound one attempt, and the budget (`memory`) bounds what
begins; but kinds outgrow their history, and other programs use memory as well. So the
loop looks at what the host, or the container, has left (`processes.host_memory`), and
tells the machine while that is little. Below a reserve, or while programs wait for
memory, nothing begins beside what runs. If that grows on, to half of the reserve, the
attempt that began last is interrupted, one after another, before the kernel kills.

Somebody always gets on: the oldest attempt is never interrupted, and one may begin
where none runs. Nor is one interrupted whose kind says ``rerun="never"``, nor a child
that was sent a job of such a kind. Such an interruption costs its job nothing, for a
day (`core.rules.policy`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobpool.core.events.pools import HostMemoryShort
from jobpool.core.rules.policy import Rerun
from jobpool.sandbox.protocol.verdict import Kill, KillReason
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.inputs import HostMemorySeen
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Assigned, Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

RESERVE_SHARE = 0.05
RESERVE_MAX_BYTES = 2**30
LEAST_SHARE = 0.5
"""Of the reserve: with less than that, an attempt is interrupted."""
OPEN_SHARE = 1.25
"""Of the reserve: with that much, jobs begin again."""
PRESSURE_MAX = 10.0
"""Where little is left: for so much of the time programs may wait, in percent."""
PRESSURE_FROM = 4.0
"""Of the reserve: with more than that, what waits is at a limit of its own."""
GONE_WITHIN_S = 1.0
"""An interrupted attempt gives its memory back in this time, or another goes too."""
REPORT_AGAIN_S = 60.0
REASON = "waits for memory of the host"


def reserve_bytes(total_bytes: int) -> int:
    """Return below how much available memory nothing begins."""
    return min(int(RESERVE_SHARE * total_bytes), RESERVE_MAX_BYTES)


def is_short(seen: HostMemorySeen, *, was_short: bool) -> bool:
    """Say whether a host has so little memory that nothing may begin.

    Args:
        seen: how it is.
        was_short: it had too little before: then it needs a little more.
    """
    share = OPEN_SHARE if was_short else 1.0
    reserve = reserve_bytes(seen.total_bytes)
    is_pressed = (seen.pressure or 0.0) > PRESSURE_MAX
    return seen.available_bytes < (PRESSURE_FROM if is_pressed else share) * reserve


class HostMemoryGuard(Gate):
    """The gate that shuts while the host is short of memory.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        interrupt: kills a slot's child.
    """

    cause = "memory of the host"

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        interrupt: Callable[[Slot, Kill], None],
    ) -> None:
        self._step = step
        self._pools = pools
        self._interrupt = interrupt
        self._is_short = False
        self._next_kill_s = 0.0
        self._going: Slot | None = None
        """The slot whose attempt was interrupted last."""
        self._reported_s = -REPORT_AGAIN_S

    @property
    def is_open(self) -> bool:
        """Whether the host has memory."""
        return not self._is_short

    def admit(self, job: Assigned) -> str | None:
        """Admit a job where nothing runs, so that somebody gets on."""
        del job
        return REASON if self._is_short and self._runs() else None

    def admits_behind(self, job: Assigned, slot: Slot) -> bool:
        """Say whether the host has memory: nothing waits behind what may have to go."""
        del job, slot
        return not self._is_short

    def shuts(self, pool: Pool) -> bool:
        """Say whether anything runs while the host is short of memory."""
        del pool
        return self._is_short and self._runs()

    def seen(self, event: HostMemorySeen) -> None:
        """The host's memory was looked at."""
        was_short = self._is_short
        self._is_short = is_short(event, was_short=was_short)
        if was_short and not self._is_short:
            self._step.recheck = True
        if self._is_short and not was_short:
            self._report(event)
        least_bytes = int(LEAST_SHARE * reserve_bytes(event.total_bytes))
        if event.available_bytes < least_bytes:
            self._free(event.available_bytes, least_bytes)

    def _free(self, available_bytes: int, least_bytes: int) -> None:
        """Interrupt the attempt that began last, unless one is just going."""
        if self._is_going():
            return
        running = [slot for slot in self._slots() if slot.queue]
        last = max(filter(_may_go, running), key=_began_s, default=None)
        if last is None or _began_s(last) <= min(map(_began_s, running)):
            return  # the oldest one gets on
        self._going, self._next_kill_s = last, self._step.now_s + GONE_WITHIN_S
        kill = Kill(KillReason.HOST_MEMORY, limit=least_bytes, seen=available_bytes)
        self._interrupt(last, kill)

    def _is_going(self) -> bool:
        """Say whether the memory of an interrupted attempt is still to come."""
        slot = self._going
        if slot is None or self._step.now_s >= self._next_kill_s:
            return False
        return slot.killed is not None

    def _runs(self) -> bool:
        return any(pool.busy for pool in self._pools.values())

    def _slots(self) -> list[Slot]:
        return [slot for pool in self._pools.values() for slot in pool.slots]

    def _report(self, event: HostMemorySeen) -> None:
        step = self._step
        if step.now_s - self._reported_s < REPORT_AGAIN_S:
            return
        self._reported_s = step.now_s
        step.report(
            HostMemoryShort(
                at_ms=step.now_ms,
                available_bytes=event.available_bytes,
                reserve_bytes=reserve_bytes(event.total_bytes),
                pressure=event.pressure,
            )
        )


def _may_go(slot: Slot) -> bool:
    """Say whether a slot's attempt may be interrupted."""
    is_never = any(job.policy.rerun is Rerun.NEVER for job in slot.queue)
    return slot.state is SlotState.BUSY and not is_never


def _began_s(slot: Slot) -> tuple[float, int]:
    """Return when a slot's attempt began; of several at once, the later one is last."""
    job = slot.queue[0]
    return (job.sent_s if job.started_s is None else job.started_s, job.lease.token)
