"""How a supervisor ends: what each request does in each mode, and by when it is over.

Theory of operation. A drain lets attempts finish within their pool's drain window; a
stop ends them now. Both wait for children to be gone and for settlements to be stored,
but not for ever: the first request sets a deadline by which the supervisor ends,
whatever is still missing: a store that does not answer, a zygote that does not fork, a
child that the kernel does not let die. Nothing can put that deadline off, and a second
request only brings the end nearer. What is still leased then stays leased, and the run
stays open in the store: the next start proves this process dead and takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from jobpool.core.events.supervisor import SupervisorDraining, SupervisorOutdated
from jobpool.core.formats import FORMAT
from jobpool.core.version import __version__
from jobpool.sandbox.protocol.messages import Draining
from jobpool.store.records.jobs import HeldBack
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.attempts.idle import IdleChildren
from jobpool.supervisor.machine.dispatch.dispatcher import Dispatcher
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import (
    IGNORE,
    NEVER_S,
    Slot,
    SlotEvent,
    SlotState,
)
from jobpool.supervisor.machine.state.step import Step

STORE_PATIENCE_S = 10.0
"""A stop waits no longer than this for the store, whatever the drain window."""
HELD_S_MAX = 60.0
"""A burst waits no longer than this for a permit."""
OUTDATED = "features of a newer release are in use"
GIVE_UP_S = 1.5
"""After the drain window, whatever is missing is given up after this time."""


class Mode(StrEnum):
    """What the supervisor is doing."""

    OPENING = "opening"
    """The store is being opened; no zygote was started yet."""
    LOADING = "loading"
    """The zygotes load the application; nothing is leased yet."""
    RUNNING = "running"
    DRAINING = "draining"
    """Nothing new begins; running attempts get the drain window."""
    STOPPING = "stopping"
    """Running attempts are ended now and handed back."""
    ENDED = "ended"
    """`Finish` was commanded; no command follows."""


class Request(StrEnum):
    """What a signal, or a part of the supervisor, may ask for."""

    DRAIN = "drain"
    """SIGTERM, Ctrl-C, the end of a burst."""
    STOP = "stop"
    """SIGQUIT, or the store has become unusable."""
    RELOAD = "reload"
    """SIGHUP."""


_M, _R = Mode, Request
_STARTING = {_R.DRAIN: _M.DRAINING, _R.STOP: _M.STOPPING, _R.RELOAD: IGNORE}
_OVER = dict.fromkeys(Request, IGNORE)
REQUESTS: Mapping[Mode, Mapping[Request, str]] = {
    _M.OPENING: _STARTING,
    _M.LOADING: _STARTING,
    _M.RUNNING: {**_STARTING, _R.RELOAD: _M.RUNNING},
    _M.DRAINING: {**_OVER, _R.DRAIN: _M.STOPPING, _R.STOP: _M.STOPPING},
    _M.STOPPING: _OVER,
    _M.ENDED: _OVER,
}
"""The mode that follows each request; a second drain request stops."""
ENDING = frozenset((_M.DRAINING, _M.STOPPING))


class Shutdown:
    """The mode, and the way from a request to the end.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        pid: the supervisor's, for events.
        dispatcher: hands back what waits.
        idle: lets idle children go.
        handle: passes an event to a slot.
    """

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        *,
        pid: int,
        dispatcher: Dispatcher,
        idle: IdleChildren,
        handle: Callable[[Slot, SlotEvent, object], None],
    ) -> None:
        self._step = step
        self._pools = pools
        self._pid = pid
        self._dispatcher = dispatcher
        self._idle = idle
        self._handle = handle
        self.mode = Mode.OPENING
        self.end_by_s = NEVER_S
        """When whatever is missing is given up."""
        self._store_until_s = NEVER_S
        """When the store is given up, if nothing else is missing."""
        self._asked_s = 0.0
        """When it was first asked to end."""
        self._is_outdated = False

    def opened(self) -> None:
        """The store is open."""
        if self.mode is Mode.OPENING:
            self.mode = Mode.LOADING

    def loaded(self) -> None:
        """Every zygote has loaded the application."""
        if self.mode is Mode.LOADING:
            self.mode = Mode.RUNNING

    def end_burst(self, held: HeldBack | None) -> None:
        """Drain after a burst, unless what quotas hold back may begin soon."""
        if held is None:
            self.ask(Request.DRAIN, "nothing is due")
        elif held.opens_in_s is None or held.opens_in_s > HELD_S_MAX:
            self.ask(Request.DRAIN, "what is due waits for quotas")

    def ask(self, request: Request, reason: str) -> None:
        """Do what `REQUESTS` says about a request to end."""
        after = REQUESTS[self.mode][request]
        if after == IGNORE:
            return
        is_first, self.mode = self.mode not in ENDING, Mode(after)
        step, pools = self._step, self._pools.values()
        step.ending = True
        step.out.append(cmd.Leaving())
        longest_s = max(pool.settings.drain_s for pool in pools)
        if is_first:
            self._asked_s = step.now_s
            self.end_by_s = self._store_until_s = step.now_s + longest_s + GIVE_UP_S
            self._report(reason, longest_s)
        if self.mode is Mode.STOPPING:
            patience_s = step.now_s + STORE_PATIENCE_S
            self._store_until_s = min(self._store_until_s, patience_s)
        for pool in pools:
            self._dispatcher.give_up(pool)
            pool.drain_until_s = step.now_s + pool.settings.drain_s
            for slot in pool.slots:
                self._wind_down(slot, reason)
        self._wake()

    def outdated(self) -> None:
        """Drain, unless it ends already: the store grants no leases to this code."""
        if self.mode in ENDING or self.mode is Mode.ENDED:
            return
        self._is_outdated = True
        event = SupervisorOutdated(
            at_ms=self._step.now_ms, pid=self._pid, version=__version__, format=FORMAT
        )
        self._step.report(event)
        self.ask(Request.DRAIN, OUTDATED)

    def _report(self, reason: str, longest_s: float) -> None:
        self._step.report(
            SupervisorDraining(
                at_ms=self._step.now_ms,
                pid=self._pid,
                reason=reason,
                running=sum(pool.busy for pool in self._pools.values()),
                drain_s=longest_s if self.mode is Mode.DRAINING else 0.0,
                estimate_s=self._estimate_s(),
            )
        )

    def _estimate_s(self) -> float | None:
        """Return how long a drain probably takes; None: that cannot be foreseen."""
        now_s, longest_s = self._step.now_s, 0.0
        for pool in self._pools.values():
            for slot in pool.slots:
                if not slot.queue:
                    continue
                head = slot.queue[0]
                usual_s = pool.durations_of(head.lease.kind).usual_s
                if usual_s is None:
                    return None
                left_s = usual_s - (now_s - (head.started_s or now_s))
                if left_s <= 0:
                    return None
                longest_s = max(longest_s, min(left_s, pool.settings.drain_s))
        return longest_s

    def _wind_down(self, slot: Slot, reason: str) -> None:
        """Do to one slot what the present mode requires."""
        if self.mode is Mode.STOPPING:
            self._handle(slot, SlotEvent.STOP, reason)
        elif slot.state is SlotState.IDLE:
            self._idle.retire(slot)
        elif slot.state is SlotState.BUSY:
            self._step.out.append(cmd.Send(slot.number, Draining()))
            if len(slot.queue) > 1:
                self._step.out.append(cmd.Recall(slot.number, slot.seq))

    def keep_time(self) -> None:
        """End attempts whose drain window is over, and find the next deadline."""
        if self.mode is Mode.DRAINING:
            for pool in self._pools.values():
                if (pool.drain_until_s or NEVER_S) <= self._step.now_s:
                    for slot in pool.slots:
                        self._handle(slot, SlotEvent.STOP, "drain window over")
        self._wake()

    def _wake(self) -> None:
        now_s = self._step.now_s
        windows_s = [pool.drain_until_s or NEVER_S for pool in self._pools.values()]
        for moment_s in (*windows_s, self._store_until_s, self.end_by_s):
            if moment_s > now_s:
                self._step.wake_at(moment_s)

    def maybe_finish(self) -> None:
        """End once every child is gone and every end is stored, or time is up."""
        if self.mode not in ENDING:
            return
        step = self._step
        slots = [slot for pool in self._pools.values() for slot in pool.slots]
        owed = step.unsettled + self._dispatcher.waiting
        if step.now_s < self.end_by_s:
            if any(slot.state is not SlotState.EMPTY for slot in slots):
                return
            if owed and step.now_s < self._store_until_s:
                return
        how = "stopped" if self.mode is Mode.STOPPING else "drained"
        self.mode = Mode.ENDED
        held = owed + sum(len(slot.queue) for slot in slots)
        step.out.append(
            cmd.Finish(
                how=how,
                exit_code=1 if held else 0,
                handed_back=step.interrupted,
                leases_held=held,
                outdated=self._is_outdated,
                took_s=step.now_s - self._asked_s,
            )
        )
