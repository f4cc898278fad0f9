"""How a slot gets a child: forked, started, ready, or failed on the way.

The slot has no job meanwhile, so none is ever charged.
"""

from __future__ import annotations

from collections.abc import Callable

from jobpool.errors import JobpoolBug
from jobpool.sandbox.protocol.messages import Draining, Ready
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Slot, SlotState, empty
from jobpool.supervisor.machine.state.step import Step

FORK_LATE_S = 5.0
START_LATE_S = 60.0
"""Includes a child's on_child_start hooks, and its imports without preload."""
FORK_LATE_AT_END_S = 0.5
"""The same once the supervisor stops: no child is needed then."""
RETRY_FIRST_S = 0.1
RETRY_LAST_S = 30.0


class Starting:
    """The actions of the slot table while there is no ready child.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        rest: called with a slot whose child waits for a job.
        freed: called with a slot that can take a job, or needs another child.
    """

    def __init__(
        self,
        step: Step,
        pools: dict[str, Pool],
        *,
        rest: Callable[[Slot], None],
        freed: Callable[[Slot], None],
    ) -> None:
        self._step = step
        self._pools = pools
        self._rest = rest
        self._freed = freed

    def fork(self, slot: Slot) -> None:
        """Ask for a child."""
        slot.become(SlotState.FORKING)
        slot.child += 1
        slot.app_version = self._pools[slot.pool].app_version
        slot.jobs = 0
        slot.idled_s = 0.0
        slot.worn = False
        slot.start_error = ""
        self._step.wake_slot_at(slot, self._step.now_s + FORK_LATE_S)
        self._step.out.append(cmd.Fork(slot.number))

    def forked(self, slot: Slot, _detail: object) -> None:
        """The child exists."""
        slot.become(SlotState.STARTING)
        slot.born_s = self._step.now_s
        self._step.wake_slot_at(slot, self._step.now_s + START_LATE_S)
        if self._step.ending:
            self.stop_starting(slot, None)
        self._freed(slot)  # the next one may be asked for

    def fork_failed(self, slot: Slot, message: object) -> None:
        """No child was made."""
        empty(slot)
        self._failed(slot, str(message))

    def stop_forking(self, slot: Slot, _detail: object) -> None:
        """Wait only briefly: a zygote that works answers soon; a frozen one never."""
        late_s = self._step.now_s + FORK_LATE_AT_END_S
        self._step.wake_slot_at(slot, min(slot.deadline_s, late_s))

    def fork_late(self, slot: Slot, _detail: object) -> None:
        """The zygote does not answer: kill it; another one replaces it."""
        message = f"made no child within {FORK_LATE_S:g} s"
        self._step.wake_slot_at(slot, self._step.now_s + FORK_LATE_S)
        self._step.out.append(cmd.KillZygote(slot.number, message))

    def ready(self, slot: Slot, frame: object) -> None:
        """The child can take a job."""
        if not isinstance(frame, Ready):
            raise JobpoolBug(f"READY came with {type(frame).__name__}; please report")
        slot.base_rss_bytes = frame.rss_bytes
        slot.seq = slot.ended_token = slot.left_bytes = slot.allowed_bytes = 0
        slot.cpu_s = 0.0
        self._pools[slot.pool].fork_failures = 0
        if self._step.ending:
            self._step.out.append(cmd.Send(slot.number, Draining()))
        self._rest(slot)

    def start_failed(self, slot: Slot, message: object) -> None:
        """The child reports why it could not set itself up; its exit follows."""
        slot.start_error = str(message)

    def start_late(self, slot: Slot, _detail: object) -> None:
        """The child is not ready in time: kill it; its exit follows."""
        slot.start_error = f"it was not ready within {START_LATE_S:g} s"
        self.stop_starting(slot, None)

    def stop_starting(self, slot: Slot, _detail: object) -> None:
        """Kill a child that is not ready yet."""
        self._step.out.append(cmd.Kill(slot.number))

    def died_starting(self, slot: Slot, exited: object) -> None:
        """The child ended before it was ready."""
        message = slot.start_error or f"it ended ({notices.exit_words(exited)})"
        empty(slot)
        if _is_fenced(exited):
            self._freed(slot)
        else:
            self._failed(slot, message)

    def died_idle(self, slot: Slot, exited: object) -> None:
        """A child without a job ended by itself; no job is charged."""
        how = notices.exit_words(exited)
        empty(slot)
        if not _is_fenced(exited):
            if slot.jobs == 0 and not self._step.ending:
                self._failed(slot, f"it ended before its first job ({how})")
                return
            event = notices.idle_child_ended(self._step.now_ms, slot.name, how)
            self._step.report(event)
        self._freed(slot)

    def _failed(self, slot: Slot, message: str) -> None:
        """Try again later, less and less often; never once the end has begun.

        What fails during a pause had been asked for before: it does not make it longer.
        """
        pool, step = self._pools[slot.pool], self._step
        if step.ending:
            self._freed(slot)
            return
        if pool.gives_way_s is not None or step.now_s >= pool.fork_retry_s:
            pool.fork_failures += 1
            pause_s = RETRY_FIRST_S * 2 ** min(pool.fork_failures - 1, 10)
            pool.fork_retry_s = step.now_s + min(pause_s, RETRY_LAST_S)
            pool.gives_way_s = None
        pause_s = pool.fork_retry_s - step.now_s
        step.wake_at(pool.fork_retry_s)
        step.report(notices.child_not_started(step.now_ms, slot.name, message, pause_s))
        self._freed(slot)


def _is_fenced(exited: object) -> bool:
    """Say whether a zygote may have ended the child because leases had run out."""
    return isinstance(exited, inp.ChildExited) and exited.fenced
