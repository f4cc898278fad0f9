"""The loop: feeds the machine with inputs and executes its commands.

Nothing here blocks, decodes a payload, or waits for the disk: commands for the store
are left with the store thread, which is woken once a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobpool.core.events.event import Observer
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.prefetch import patience_s
from jobpool.supervisor.machine.machine import Machine
from jobpool.supervisor.processes.children import Children
from jobpool.supervisor.processes.zygotes import Zygotes
from jobpool.supervisor.reactor import Reactor
from jobpool.supervisor.storage.thread import StoreThread

_FOR_STORE = frozenset(
    (
        cmd.Settle,
        cmd.Record,
        cmd.NoteStart,
        cmd.Enqueue,
        cmd.Lease,
        cmd.TakePermits,
        cmd.ReturnPermits,
        cmd.BlockBuckets,
        cmd.ReportRequests,
        cmd.Report,
        cmd.Clear,
        cmd.SaveBreaker,
        cmd.Leaving,
    )
)

Alive = Callable[[float], float]
"""Called with the time while the loop turns; returns when to call it again at the
latest. Must neither block nor raise."""


class Loop:
    """The supervisor's main loop; everything it needs is made by `serve`.

    Args:
        machine: decides.
        reactor: waits.
        store: executes commands for the store.
        children: execute commands for a child.
        zygotes: execute commands for a zygote.
        observer: gets the events.
        alive: called while the loop turns, so that a hang can be noticed from outside.
    """

    def __init__(
        self,
        machine: Machine,
        reactor: Reactor,
        *,
        store: StoreThread,
        children: Children,
        zygotes: Zygotes,
        observer: Observer,
        alive: Alive | None = None,
    ) -> None:
        self._machine = machine
        self._reactor = reactor
        self._store = store
        self._children = children
        self._zygotes = zygotes
        self._alive = alive or _nobody
        self._alive_s = 0.0
        self._finish: cmd.Finish | None = None
        self._for_store: list[cmd.Command] = []
        """The commands that this turn leaves with the store thread."""
        self._execute: Mapping[type, Callable[[Any], None]] = {
            cmd.StartZygote: lambda c: zygotes.start(c.pool),
            cmd.KillZygote: lambda c: zygotes.kill(c.slot, c.message),
            cmd.TakeOver: lambda c: zygotes.take_over(c.pool),
            cmd.DropZygote: lambda c: zygotes.drop(c.pool),
            cmd.Fork: lambda c: children.fork(c.slot),
            cmd.Assign: lambda c: children.assign(c.slot, c.frames),
            cmd.Watch: children.begin_watch,
            cmd.Unwatch: lambda c: children.watch.rest(c.slot, c.allowed_bytes),
            cmd.Send: lambda c: children.send(c.slot, c.frame),
            cmd.Recall: lambda c: children.recall(c.slot, c.last_seq),
            cmd.SoftTimeout: lambda c: children.soft_timeout(c.slot),
            cmd.SoftMemory: lambda c: children.soft_memory(c.slot),
            cmd.Dump: lambda c: children.dump(c.slot),
            cmd.Kill: lambda c: children.kill(c.slot),
            cmd.Observe: lambda c: observer.observe(c.event),
            cmd.Finish: self._finished,
            **dict.fromkeys(_FOR_STORE, self._for_store.append),
        }

    def run(self) -> cmd.Finish:
        """Run until the machine says that everything is done."""
        clock = self._reactor.clock
        self._do(self._machine.start(clock.monotonic_s(), clock.utc_ms()))
        self._handle()
        while self._finish is None:
            self._turn()
        return self._finish

    def _turn(self) -> None:
        machine, children, zygotes = self._machine, self._children, self._zygotes
        now_s = self._reactor.now_s()
        due_s = machine.next_deadline_s()  # only its own steps change that
        until_s = min(
            due_s,
            children.next_s(),
            zygotes.next_s(),
            self._alive_s,
        )
        if len(self._reactor):
            self._reactor.wait(now_s)
        else:
            gather_s = patience_s(machine.pools.values())
            # Jobs that wait for room in a socket keep no child busy; a child whose
            # socket is full must wait. All children are looked at only if need be.
            if gather_s and children.is_congested():
                gather_s = 0.0
            self._reactor.wait(until_s, gather_s)
        now_s = self._reactor.now_s()
        if now_s >= self._alive_s:
            self._alive_s = self._alive(now_s)
        children.check(now_s)
        zygotes.check(now_s)
        if now_s >= due_s:
            self._reactor.feed(inp.Tick())
        self._handle()

    def _handle(self) -> None:
        """Handle the inputs that wait, then leave the store thread its commands.

        Inputs that arise meanwhile wait for the next turn, so that whatever the machine
        does, the sockets are polled in between.
        """
        clock, step, reactor = self._reactor.clock, self._machine.step, self._reactor
        try:
            for _ in range(len(reactor)):
                event, now_s = reactor.take(), clock.monotonic_s()
                slept_s = clock.boottime_s() - now_s
                self._do(step(event, now_s, clock.utc_ms(), slept_s))
        finally:  # whatever happens here, known ends are to be written
            if self._for_store:
                self._store.leave(self._for_store)
                self._for_store.clear()

    def _do(self, commands: list[cmd.Command]) -> None:
        for command in commands:
            self._execute[type(command)](command)

    def _finished(self, command: cmd.Finish) -> None:
        self._finish = self._finish or command


def _nobody(_now_s: float) -> float:
    """Do nothing."""
    return float("inf")
