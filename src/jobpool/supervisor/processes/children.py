"""The children behind the machine's slots: forks, frames, kills, deaths.

Theory of operation. A slot's child is made in three steps: the supervisor opens its
channels and hands one end of each to the pool's zygote; the zygote answers with the pid
of a process that is already the supervisor's own child; its identity goes into the slot
file, and only then is it told to go. A death is noticed by the pidfd. The child's last
frames are read, its status is reaped, and whatever it left behind, which the kernel has
reparented to us as the nearest subreaper, is killed and reaped. Only then does the
machine learn of the death. While a fork is under way, an unknown child of ours may be
its result, so the sweep waits.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Iterable, Sequence

from jobpool.core.config.settings import (
    CHECKPOINT_MAX_BYTES,
    PoolSettings,
    Settings,
)
from jobpool.core.config.store_url import files_of, without_password
from jobpool.core.events.pools import ChildEnded, ChildStarted
from jobpool.core.isolation.measures import Lockdown
from jobpool.core.jobs.job import NewJob
from jobpool.errors import UsageError
from jobpool.sandbox.cgroups.memory_left import Left
from jobpool.sandbox.cgroups.run_group import RunGroup
from jobpool.sandbox.handles.child import ChildProcess
from jobpool.sandbox.protocol.messages import FrameError, Go, RunJob, ToChild
from jobpool.sandbox.protocol.validation import screened
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.sandbox.runs.marks import try_read_marks
from jobpool.sandbox.runs.run_directory import RunDirectory
from jobpool.sandbox.system.oom import OomKills, OomScores
from jobpool.sandbox.system.pressure import some_avg10
from jobpool.sandbox.system.process_tree import sweep_orphans
from jobpool.store.statements.validation import check_added
from jobpool.supervisor.isolation import enclose
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.slot import NEVER_S, Slot
from jobpool.supervisor.processes.host_memory import HostMemory
from jobpool.supervisor.processes.memory_watch import Watch
from jobpool.supervisor.processes.zygotes import Zygotes
from jobpool.supervisor.reactor import Reactor

SWEEP_AGAIN_S = 0.005
PATROL_EVERY_S = 1.0
OUTPUT_TAIL_BYTES = 64 * 1024
_SKEW_MS = 366 * 86_400_000
"""More than a store's clock may be ahead of ours, or a settlement may wait."""


class Children:
    """The processes behind the slots.

    Args:
        reactor: waits for their descriptors and takes events.
        zygotes: make them.
        run: the run directory.
        slots: the machine's slots; only read.
        lockdown: returns the confinement of a pool's children.
        group: the run's cgroup; None: it has none.
        memory: looks at what memory is left.
    """

    def __init__(
        self,
        reactor: Reactor,
        zygotes: Zygotes,
        run: RunDirectory,
        *,
        slots: Sequence[Slot],
        lockdown: Callable[[PoolSettings], Lockdown],
        group: RunGroup | None = None,
        memory: Callable[[], Left],
    ) -> None:
        self._reactor = reactor
        self._zygotes = zygotes
        self._run = run
        self._sends_reports = zygotes.settings.sentry is not None
        """At the start: a reload does not begin to send what children leave."""
        self._slots = slots
        self._lockdown = lockdown
        self._group = group
        self._processes: dict[int, ChildProcess] = {}
        self._forking: dict[int, ChildProcess] = {}
        self._dead: dict[int, tuple[ChildProcess, Exit]] = {}
        """Children that are reaped, but whose orphans are not all gone yet."""
        self._never_begun: dict[int, list[int]] = {}
        """The jobs that a slot's reaped child never began, by slot."""
        self._without_ticket: dict[int, list[int]] = {}
        """Jobs whose ticket could not be written: the child cannot begin them."""
        self._patrol_s = 0.0
        self._met: frozenset[tuple[int, int]] = frozenset()
        """Orphans met by the last sweep: pids and start times."""
        self._left: dict[int, frozenset[tuple[int, int]]] = {}
        """Orphans that may be of a dead child's tree, by slot."""
        self._sweep_s = NEVER_S
        self._oom_kills = OomKills()
        self._scores = OomScores()
        self.watch = Watch(reactor.feed)
        self._host_memory = HostMemory(
            memory,
            lambda: some_avg10("memory"),
            is_busy=lambda: any(slot.queue for slot in slots),
            report=reactor.feed,
        )
        zygotes.on_forked = self.forked
        zygotes.on_fork_failed = self.fork_failed

    # -- commands ------------------------------------------------------------------

    def fork(self, number: int) -> None:
        """Make a child for a slot."""
        slot = self._slots[number]
        try:
            process = ChildProcess(
                number,
                slot.name,
                self._run.mark_path(number),
                self._lockdown(self._pool(slot)),
            )
        except OSError as exc:
            self._refused(number, exc)
            return
        try:
            self._zygotes.fork(
                slot.pool, number, process.fds_for_child, process.lockdown.enclosure
            )
        except OSError as exc:
            process.close()
            self._reactor.feed(
                inp.ForkRefused(number, f"it cannot be asked for: {exc}")
            )
            return
        process.close_child_ends()
        self._forking[number] = process

    def _refused(self, number: int, exc: OSError) -> None:
        """A child's files or descriptors cannot be opened; perhaps they never can."""
        self._reactor.feed(inp.ForkRefused(number, f"no file for it: {exc}"))
        if isinstance(exc, FileNotFoundError):
            path = self._run.path
            self._reactor.feed(inp.Drain(f"its run directory {path} was removed"))

    def forked(self, number: int, pid: int) -> None:
        """The zygote has made the child: record it, then let it start."""
        process = self._no_longer_forking(number)
        try:
            process.attach(pid)
            self._run.write_slot(number, pid, process.start_time)
        except OSError as exc:
            # It waits for Go: closing its socket ends it, and the sweep reaps it.
            process.close()
            self._sweep_s = self._reactor.now_s()
            self._reactor.feed(inp.ForkRefused(number, f"cannot record it: {exc}"))
            return
        slot = self._slots[number]
        settings = self._zygotes.settings
        pool = self._pool(slot)
        self._processes[number] = process
        at_ms = self._reactor.clock.utc_ms()
        for event in enclose(process, pool, self._group, at_ms):
            self._reactor.observe(event)
        go = _go(
            process,
            self._run,
            settings,
            pool,
            self._zygotes.spared(),
            sends_reports=self._sends_reports,
        )
        process.send(go)
        self._reactor.watch(process, lambda mask: self._socket_ready(number, mask))
        self._reactor.watch(process.pidfd, lambda _mask: self._ended(number))
        self.watch.adopt(number, process, pool)
        self._reactor.feed(inp.ChildForked(number))
        self._reactor.observe(ChildStarted(at_ms=at_ms, slot=slot.name, pid=pid))

    def fork_failed(self, number: int, message: str) -> None:
        """The zygote could not make the child."""
        if number in self._forking:
            self._no_longer_forking(number).close()
            self._reactor.feed(inp.ForkRefused(number, message))

    def _no_longer_forking(self, number: int) -> ChildProcess:
        """A fork has ended: it holds up no sweep any more."""
        if self._dead:
            self._sweep_s = self._reactor.now_s()
        return self._forking.pop(number)

    def assign(self, number: int, frames: Sequence[RunJob]) -> None:
        """Send jobs and their tickets."""
        process, seqs = self._process(number), [frame.seq for frame in frames]
        if process is None:
            self._never_begun[number] += seqs
            return
        self.send(number, *frames)
        try:
            process.issue_tickets(seqs)
        except OSError as exc:
            self._without_ticket.setdefault(number, []).extend(seqs)
            self._reactor.feed(inp.FrameBroken(number, f"its tickets back: {exc}"))

    def send(self, number: int, *frames: ToChild) -> None:
        """Send messages; what the socket does not take now is sent later."""
        process = self._process(number)
        if process is None:
            return
        waited = process.wants_write
        process.send(*frames)
        if process.wants_write and not waited and number in self._processes:
            self._reactor.want_write(process, on=True)

    def begin_watch(self, order: cmd.Watch) -> None:
        """An attempt begins under a memory limit."""
        process = self._process(order.slot)
        if process is not None:
            process.bound_memory(order.memory_bytes)
            now_s = self._reactor.now_s()
            self.watch.begin(order, now_s)
            self._host_memory.begin(now_s)

    def recall(self, number: int, last_seq: int) -> None:
        """Take back what the child has not begun."""
        process = self._process(number)
        seqs = tuple(process.recall()) if process is not None else ()
        marked = try_read_marks(process.mark_path) if process is not None else None
        self._reactor.feed(inp.Recalled(number, seqs, last_seq, marked))

    def soft_timeout(self, number: int) -> None:
        """Signal the soft time limit to the child."""
        if process := self._process(number):
            process.soft_timeout()

    def soft_memory(self, number: int) -> None:
        """Signal the soft memory limit to the child."""
        if process := self._process(number):
            process.soft_memory()

    def dump(self, number: int) -> None:
        """Make the child write its stacks, and note its descendants."""
        if process := self._process(number):
            process.dump_stack(dying=self._slots[number].killed is not None)

    def kill(self, number: int) -> None:
        """Kill the child's tree, if the child is not dead already."""
        if number in self._processes:
            self._processes[number].kill_tree()

    # -- the loop's side -----------------------------------------------------------

    def next_s(self) -> float:
        """Return when `check` has something to do."""
        return min(
            self.watch.next_s(),
            self._host_memory.next_s,
            self._sweep_s,
            self._patrol_s,
        )

    def check(self, now_s: float) -> None:
        """Sample memory, and sweep if that is due."""
        self.watch.sample(now_s)
        self._host_memory.check(now_s)
        if now_s >= self._sweep_s or now_s >= self._patrol_s:
            # Also without a death: a handler can make processes that are ours at
            # once (clone with CLONE_PARENT), beside a child that lives on.
            if now_s >= self._patrol_s:
                for pid in self._scores.restore(self._zygotes.pids()):
                    at_ms = self._reactor.clock.utc_ms()
                    self._reactor.observe(notices.oom_score_raised(at_ms, pid))
            self._patrol_s = now_s + PATROL_EVERY_S
            self._report_dead()

    def is_congested(self) -> bool:
        """Say whether messages have waited for room or a turn since the last call."""
        return any(process.is_congested() for process in self._processes.values())

    def pids(self) -> set[int]:
        """Return the pids of all living children."""
        return {process.pid for process in self._processes.values()}

    def close(self) -> None:
        """Close what is left of every child."""
        for process in (*self._processes.values(), *self._forking.values()):
            process.close()

    def _pool(self, slot: Slot) -> PoolSettings:
        pools = self._zygotes.settings.pools
        return next(pool for pool in pools if pool.name == slot.pool)

    def _process(self, number: int) -> ChildProcess | None:
        """Return a slot's child, also a dead one; None: it is reaped already.

        The machine learns of a death later; what it does to the slot until then must
        have no effect. A job sent to a dead child leaves its ticket behind; one sent to
        a reaped child is added to those that never began in the event of its death.
        """
        process = self._processes.get(number)
        if process is not None:
            return process
        dead = self._dead.get(number)
        return dead[0] if dead is not None else None

    # -- events --------------------------------------------------------------------

    def _socket_ready(self, number: int, mask: int) -> None:
        process = self._processes.get(number)
        if process is None:
            return  # its death came first in this turn, and its last frames were read
        if mask & selectors.EVENT_WRITE:
            process.flush()
            if not process.wants_write:
                self._reactor.want_write(process, on=False)
        if mask & selectors.EVENT_READ and not self._read(number, process):
            self._reactor.unwatch(process)

    def _read(self, number: int, process: ChildProcess) -> bool:
        """Feed what the child has sent; False: no more can follow."""
        try:
            frames = process.receive()
        except FrameError as exc:
            self._reactor.feed(inp.FrameBroken(number, str(exc)))
            return False
        if frames is None:
            return False
        good, wrong = screened(
            frames,
            result_max_bytes=self._zygotes.settings.result_max_bytes,
            checkpoint_max_bytes=CHECKPOINT_MAX_BYTES,
            wrong_with=_wrong_with,
        )
        if good:
            peak = self.watch.peak_bytes(number)
            self._reactor.feed(inp.FramesArrived(number, good, peak))
        if wrong is not None:
            self._reactor.feed(inp.FrameBroken(number, wrong))
        return wrong is None

    def _read_all(self, number: int, process: ChildProcess) -> None:
        """Feed everything that a dead child had sent."""
        waiting = len(self._reactor)
        while self._read(number, process) and len(self._reactor) > waiting:
            waiting = len(self._reactor)

    def _ended(self, number: int) -> None:
        """The child is dead: read its last frames, reap it, sweep after it."""
        process = self._processes[number]
        self._read_all(number, process)
        ended = process.reap()
        if ended is None:
            return
        self._reactor.unwatch(process.pidfd)
        self._reactor.unwatch(process)
        del self._processes[number]
        self._dead[number] = (process, ended)
        self._report_dead()

    def _report_dead(self) -> None:
        """Report dead children once nothing of their trees is left."""
        self._sweep_s = NEVER_S
        if self._forking or self._zygotes.is_branching():
            self._sweep_s = self._reactor.now_s() + SWEEP_AGAIN_S
            return
        known = self.pids() | self._zygotes.pids()
        orphans = sweep_orphans(known, self._zygotes.oldest_start_time)
        if orphans is None:  # the sweep failed: nothing is known of any tree
            self._sweep_s = self._reactor.now_s() + SWEEP_AGAIN_S
            return
        # A new orphan may be of any tree that is not gone yet, but of no later one: an
        # orphan that does not die holds up no other child's end.
        for number in self._dead:
            self._left[number] = (orphans - self._met) | (
                self._left.get(number, frozenset()) & orphans
            )
        self._met = orphans
        if orphans:
            self._sweep_s = self._reactor.now_s() + SWEEP_AGAIN_S
        clean = [
            number
            for number, (process, _ended) in self._dead.items()
            if not (self._left[number] or process.is_populated)
        ]
        if len(clean) < len(self._dead):
            self._sweep_s = self._reactor.now_s() + SWEEP_AGAIN_S
        host_oom = self._oom_kills.rose() if clean else False
        for number in clean:
            process, ended = self._dead.pop(number)
            del self._left[number]
            peak = self.watch.peak_bytes(number)
            trail_seq, trail = self.watch.trail(number)
            self.watch.drop(number)
            self._run.write_slot(number, 0, 0)
            self._zygotes.reaped(process.pid)
            never_begun = self._never_begun[number] = [
                *process.recall(),
                *self._without_ticket.pop(number, ()),
            ]
            exited = inp.ChildExited(
                slot=number,
                exit=ended,
                never_begun=never_begun,
                marked=try_read_marks(process.mark_path),
                peak_rss_bytes=peak,
                trail_seq=trail_seq,
                memory_trail=trail,
                output=process.output_tail(OUTPUT_TAIL_BYTES),
                stack=process.stack_text(),
                processes=process.below,
                host_oom=host_oom,
                fenced=ended.signal == signal.SIGKILL and self._zygotes.fenced(),
            )
            self._reactor.feed(exited)
            self._reactor.observe(
                ChildEnded(
                    at_ms=self._reactor.clock.utc_ms(),
                    slot=process.slot_name,
                    pid=process.pid,
                    jobs=self._slots[number].jobs,
                    reason=notices.exit_words(exited),
                )
            )
            process.close()


def _wrong_with(added: Sequence[NewJob]) -> str | None:
    """Say what keeps jobs from being added to a flow: nobody could settle it then."""
    try:
        check_added(added, now_ms=time.time_ns() // 10**6 + _SKEW_MS)
    except UsageError as exc:
        return f"jobs added to a flow that no store would take: {exc}"
    return None


def _go(
    process: ChildProcess,
    run: RunDirectory,
    settings: Settings,
    pool: PoolSettings,
    spared: Iterable[int],
    *,
    sends_reports: bool,
) -> Go:
    """Return the message that lets a new child start."""
    return Go(
        slot_name=process.slot_name,
        run_id=run.run_id,
        memory_backstop_bytes=pool.limits.memory_bytes,
        result_max_bytes=settings.result_max_bytes,
        checkpoint_max_bytes=CHECKPOINT_MAX_BYTES,
        tmp_root=str(run.tmp_root),
        store_url=without_password(settings.store),
        lockdown=process.lockdown,
        payload_max_bytes=settings.payload_max_bytes,
        admission=settings.admission,
        pool_names=settings.pool_names,
        sends_reports=sends_reports,
        cgroup=process.group.path if process.group else "",
        is_for_one=pool.recycle_jobs == 1,
        spared=tuple(spared),
        hidden=(*files_of(settings.store), str(run.path.parent)),
    )
