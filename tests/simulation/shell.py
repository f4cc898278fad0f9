"""The supervisor's surroundings in virtual time: reactor and children.

They replace `supervisor.reactor` and `children` and keep their promises to the loop:
what is reported, in which order, and that a death is reported only when nothing of the
tree is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from jobpool.core.events.event import Event, Observer
from jobpool.sandbox.protocol.messages import (
    Done,
    FromChild,
    PermitAnswered,
    Retire,
    RunJob,
)
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.slot import Slot
from simulation import asking, fates
from simulation.host import Host, HostClock, RunDir, Tree
from simulation.hostmemory import GuardedMemory
from simulation.kernel import Kernel, Process, Waiters
from simulation.zygotes import SimZygotes

NEVER_S = float("inf")
TURN_S = 2e-5
SWEEP_S = 0.005


class SimReactor:
    """`Reactor` in virtual time."""

    def __init__(
        self, kernel: Kernel, process: Process, clock: HostClock, observer: Observer
    ) -> None:
        self.kernel = kernel
        self.process = process
        self.clock = clock
        self._observer = observer
        self._fed: deque[Any] = deque()
        self._ready: deque[Callable[[], None]] = deque()
        self._waiters = Waiters(kernel)

    def now_s(self) -> float:
        """See `Reactor.now_s`."""
        return self.clock.monotonic_s()

    def watch(self, *_args: object) -> None:
        """Descriptors have no meaning here."""

    def on_signals(self, _actions: object) -> None:
        """Signals arrive through `feed`."""

    def close(self) -> None:
        """Nothing is open."""

    def observe(self, event: Event) -> None:
        """See `Reactor.observe`."""
        self._observer.observe(event)

    def feed(self, event: Any) -> None:
        """See `Reactor.feed`."""
        self._fed.append(event)

    def post(self, event: Any) -> None:
        """See `Reactor.post`."""
        if isinstance(event, Event):
            self.call(lambda: self._observer.observe(event))
        else:
            self.call(lambda: self._fed.append(event))

    def call(self, act: Callable[[], None]) -> None:
        """Let the loop call *act* when it next checks its descriptors."""
        if self.process.alive:
            self._ready.append(act)
            self._waiters.wake()

    def __len__(self) -> int:
        return len(self._fed)

    def take(self) -> Any:
        """See `Reactor.take`."""
        return self._fed.popleft()

    def wait(self, until_s: float, _gather_s: float = 0.0) -> None:
        """See `Reactor.wait`; a turn in which nothing is ready takes some time."""
        if not self._ready:
            left_s = max(TURN_S, until_s - self.now_s())
            self._waiters.wait(None if until_s == NEVER_S else left_s)
        for _ in range(len(self._ready)):
            self._ready.popleft()()


class _Watch:
    """`Watch`: which child to sample, and for what."""

    def __init__(self) -> None:
        self.seqs: dict[int, int] = {}

    def rest(self, number: int, _allowed_bytes: int = 0) -> None:
        """See `Watch.rest`."""
        self.seqs.pop(number, None)


class SimChildren:
    """`Children` in virtual time."""

    def __init__(
        self,
        reactor: SimReactor,
        zygotes: SimZygotes,
        run: Any,
        *,
        slots: Sequence[Slot],
        lockdown: object,
        group: object,
        memory: object,
    ) -> None:
        del lockdown, group, memory
        self._reactor = reactor
        self._kernel = reactor.kernel
        self._zygotes = zygotes
        self.run: RunDir = run.record
        self._slots = slots
        self._made = 0
        self._processes: dict[int, Tree] = {}
        self._dead: dict[int, Tree] = {}
        self._never_begun: dict[int, list[int]] = {}
        self._forking: set[int] = set()
        self.watch = _Watch()
        self._memory = GuardedMemory(self.host, reactor, slots)
        zygotes.run = self.run
        zygotes.on_fork_failed = self._fork_failed

    def is_congested(self) -> bool:
        """Say no: nothing here waits for room in a socket."""
        return False

    @property
    def host(self) -> Host:
        """Where it runs."""
        return self.run.host

    # -- commands ----------------------------------------------------------------------

    def fork(self, number: int) -> None:
        """See `Children.fork`."""
        self._kernel.step(self._reactor.process)
        world, pool = self.host.world, self._slots[number].pool
        zygote = self._zygotes.serving.get(pool)
        if zygote is None or world.chance("fork refused"):
            world.sometimes["a fork was refused"] += 1
            self._reactor.feed(inp.ForkRefused(number, "no child can be made"))
            return
        self._zygotes.forking.setdefault(pool, set()).add(number)
        self._forking.add(number)
        if world.chance("fork hangs"):
            world.sometimes["a zygote hung in a fork"] += 1
            return

        def made() -> None:
            if self._zygotes.serving.get(pool) != zygote:
                return
            if not self._reactor.process.alive:
                return
            self._made += 1
            tree = Tree(world, self.run, number, self._made)
            self.run.trees = [t for t in self.run.trees if t.alive]
            self.run.trees.append(tree)
            self._zygotes.children.setdefault(pool, set()).add(tree)
            self._reactor.call(lambda: self._forked(number, tree))

        self._kernel.after(0.001 + 0.004 * world.random.random(), made)

    def _forked(self, number: int, tree: Tree) -> None:
        pool = self._slots[number].pool
        self._zygotes.forking.get(pool, set()).discard(number)
        if number not in self._forking:
            tree.die("supervisor", signal=9)  # its zygote was lost: it was given up
            return
        self._forking.discard(number)
        self._processes[number] = tree
        tree.on_end = lambda: self._arrive(tree, lambda: self._ended(number, tree))
        self._reactor.feed(inp.ChildForked(number))
        if not tree.alive:
            tree.on_end()
            return
        fates.set_up(tree, lambda frame: self._send_up(number, tree, frame))

    def _fork_failed(self, number: int, message: str) -> None:
        if number in self._forking:
            self._forking.discard(number)
            self._reactor.feed(inp.ForkRefused(number, message))

    def assign(self, number: int, frames: Sequence[RunJob]) -> None:
        """See `Children.assign`."""
        self._kernel.step(self._reactor.process)
        tree = self._process(number)
        if tree is None:
            self._never_begun[number] += [frame.seq for frame in frames]
            return
        self._memory.assigned(number, len(frames))
        for frame in frames:
            tree.frames.append(frame)
            tree.tickets.append(frame.seq)
            if len(tree.frames) > 1:
                self.host.world.sometimes["a job was sent ahead"] += 1
            fates.offer(tree)

    def send(self, number: int, frame: object) -> None:
        """See `Children.send`."""
        tree = self._process(number)
        if tree is not None and isinstance(frame, Retire):
            fates.retire(tree)
        elif tree is not None and isinstance(frame, PermitAnswered):
            self._kernel.after(
                self._kernel.soon_s(),
                lambda: asking.answered(tree, frame),
                tree.run.host.machine,
            )

    def begin_watch(self, order: cmd.Watch) -> None:
        """See `Children.begin_watch`."""
        if self._process(order.slot) is not None:
            self.watch.seqs[order.slot] = order.seq
            self._memory.begin(self._reactor.now_s())

    def recall(self, number: int, last_seq: int) -> None:
        """See `Children.recall`."""
        self._kernel.step(self._reactor.process)
        tree = self._process(number)
        seqs = _take_tickets(tree) if tree else ()
        marks = frozenset(self.run.marks)
        self._reactor.feed(inp.Recalled(number, seqs, last_seq, marks))

    def soft_timeout(self, number: int) -> None:
        """See `Children.soft_timeout`."""
        tree = self._process(number)
        if tree is not None:
            fates.soft_timeout(tree)

    def soft_memory(self, number: int) -> None:
        """See `Children.soft_memory`: no tree here is over that limit."""

    def dump(self, number: int) -> None:
        """See `Children.dump`: it has no stacks."""

    def kill(self, number: int) -> None:
        """See `Children.kill`."""
        self._kernel.step(self._reactor.process)
        tree = self._processes.get(number)
        if tree is not None:
            if self._kernel.now_s < tree.stuck_until_s:
                self.host.world.sometimes["a child did not die when killed"] += 1
            cause = self._memory.killed(number)
            self._kernel.after(
                self._kernel.soon_s() * 10, lambda: tree.die(cause, signal=9)
            )

    # -- the loop's side ---------------------------------------------------------------

    def next_s(self) -> float:
        """See `Children.next_s`."""
        return self._memory.next_s

    def check(self, now_s: float) -> None:
        """See `Children.check`."""
        self._memory.check(now_s)

    def close(self) -> None:
        """See `Children.close`."""

    def living(self) -> list[Tree]:
        """Return the living children, as targets for harm."""
        return [tree for tree in self._processes.values() if tree.alive]

    def _process(self, number: int) -> Tree | None:
        return self._processes.get(number) or self._dead.get(number)

    # -- events ------------------------------------------------------------------------

    def _send_up(self, number: int, tree: Tree, frame: FromChild | str) -> None:
        """A child sends a frame, or (a text) something that is not a frame."""
        self._arrive(tree, lambda: self._received(number, tree, frame))

    def _arrive(self, tree: Tree, act: Callable[[], None]) -> None:
        """Do something in the loop after everything that the tree has sent before."""
        arrives_s = self._kernel.now_s + self._kernel.soon_s() * 5
        tree.pipe_s = max(tree.pipe_s + 1e-7, arrives_s)
        self._kernel.at(tree.pipe_s, lambda: self._reactor.call(act))

    def _received(self, number: int, tree: Tree, frame: FromChild | str) -> None:
        if self._processes.get(number) is not tree:
            return
        if isinstance(frame, str):
            if frame.startswith("over memory"):
                seq = int(frame.rpartition(" ")[2])
                if self.watch.seqs.get(number) == seq:
                    self._reactor.feed(inp.OverMemory(number, seq, 2**30))
                return
            if frame == "restless":
                if number not in self.watch.seqs:
                    self._reactor.feed(inp.NotIdle(number, "does not rest"))
                return
            self._reactor.feed(inp.FrameBroken(number, frame))
            return
        if isinstance(frame, Done) and self._slots[number].killed is not None:
            self.host.world.sometimes["a last word crossed with the kill"] += 1
        peak = tree.rss_bytes if isinstance(frame, Done) else 0
        self._reactor.feed(inp.FramesArrived(number, [frame], peak))

    def _ended(self, number: int, tree: Tree) -> None:
        """The child is dead: reap it, then sweep."""
        if self._processes.get(number) is tree:
            del self._processes[number]
            self._dead[number] = tree
            self._report_dead(number, tree)

    def _report_dead(self, number: int, tree: Tree) -> None:
        """Report a death once nothing of its tree is left."""
        left = [o for o in self.run.orphans if o.alive]
        if left:
            self.host.world.sometimes["an orphan was swept"] += 1
            for orphan in left:
                self.run.end_orphan(orphan, self.host.world)
            again = lambda: self._reactor.call(  # noqa: E731 - only here
                lambda: self._report_dead(number, tree)
            )
            self._kernel.after(SWEEP_S, again)
            return
        del self._dead[number]
        for pool in (
            *self._zygotes.children.values(),
            *self._zygotes.unguarded.values(),
        ):
            pool.discard(tree)
        self.watch.rest(number)
        never_begun = self._never_begun[number] = list(_take_tickets(tree))
        if never_begun:
            self.host.world.sometimes["a job was never begun by a dead child"] += 1
        host_oom = tree.signal == 9 and self.host.oom_kills > 0
        if host_oom:
            self.host.oom_kills -= 1
        self._reactor.feed(
            inp.ChildExited(
                slot=number,
                exit=Exit(exit_code=tree.exit_code, signal=tree.signal),
                never_begun=never_begun,
                marked=frozenset(self.run.marks),
                host_oom=host_oom,
                fenced=tree.signal == 9 and self._zygotes.fenced(),
            )
        )


def _take_tickets(tree: Tree) -> tuple[int, ...]:
    taken = tuple(tree.tickets)
    tree.tickets.clear()
    return taken
