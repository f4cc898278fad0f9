"""How slots come by their processes: channels, a zygote's answer, the slot file, Go.

Theory of operation. A child is made in three steps: the supervisor opens its channels
and hands one end of each to the pool's zygote; the zygote answers with the pid of a
process that is already the supervisor's own; its identity goes into the slot file, and
only then it is told to go. What a turn of the loop wants of a zygote is asked for at
its end, together: children that are forked together cost less (`forking`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobpool.core.isolation import Lockdown
from jobpool.core.settings import PoolSettings
from jobpool.core.storeurl import files_of, without_password
from jobpool.sandbox.frames import Go
from jobpool.sandbox.identity import RunDirectory
from jobpool.sandbox.process import ChildProcess
from jobpool.sandbox.rungroup import RunGroup
from jobpool.supervisor import messages as m
from jobpool.supervisor.enclosing import enclose
from jobpool.supervisor.reactor import Reactor
from jobpool.supervisor.slot import Slot
from jobpool.supervisor.zygotes import Zygotes

CHECKPOINT_MAX_BYTES = 64 * 1024
FORKS_AT_ONCE = 8
"""So many children are asked for in one message: their descriptors travel with it."""


class Births:
    """The children that are on their way.

    Args:
        reactor: takes events.
        zygotes: make them.
        run: the run directory.
        slots: the machine's slots; only read.
        lockdown: says what children of a pool do to themselves.
        group: the run's cgroup; None: it has none.
        born: called with a slot's child, which has been told to go.
        known: called when a fork is over, and no unknown child of ours is that one's
            any more; with whether its child is to be swept.
    """

    def __init__(
        self,
        reactor: Reactor,
        zygotes: Zygotes,
        run: RunDirectory,
        *,
        slots: Sequence[Slot],
        lockdown: Callable[[PoolSettings], Lockdown],
        group: RunGroup | None,
        born: Callable[[int, ChildProcess], None],
        known: Callable[[bool], None],
    ) -> None:
        self._reactor = reactor
        self._zygotes = zygotes
        self._run = run
        self._slots = slots
        self._lockdown = lockdown
        self._group = group
        self._born = born
        self._known = known
        self._wanted: dict[str, list[ChildProcess]] = {}
        """By pool, what no zygote was asked for so far."""
        self._forking: dict[int, ChildProcess] = {}
        zygotes.on_forked = self.forked
        zygotes.on_fork_failed = self.fork_failed

    @property
    def are_under_way(self) -> bool:
        """Whether an unknown child of ours may be one that a zygote was asked for."""
        return bool(self._forking)

    def want(self, number: int) -> None:
        """Open the channels of a slot's child; `ask` goes on."""
        slot = self._slots[number]
        try:
            process = ChildProcess(
                number,
                slot.name,
                self._run.mark_path(number),
                self._lockdown(self.pool_of(slot)),
            )
        except OSError as exc:
            self._refused(number, exc)
            return
        self._wanted.setdefault(slot.pool, []).append(process)

    def ask(self) -> None:
        """Ask the zygotes for all that is wanted."""
        while self._wanted:
            pool, processes = self._wanted.popitem()
            for first in range(0, len(processes), FORKS_AT_ONCE):
                self._ask(pool, processes[first : first + FORKS_AT_ONCE])

    def close(self) -> None:
        """Close what is left of every child that is on its way."""
        wanted = (one for processes in self._wanted.values() for one in processes)
        for process in (*wanted, *self._forking.values()):
            process.close()

    def pool_of(self, slot: Slot) -> PoolSettings:
        """Return the settings of a slot's pool."""
        pools = self._zygotes.settings.pools
        return next(pool for pool in pools if pool.name == slot.pool)

    def _ask(self, pool: str, processes: Sequence[ChildProcess]) -> None:
        try:
            self._zygotes.fork(
                pool,
                [process.slot for process in processes],
                [fd for process in processes for fd in process.fds_for_child],
                processes[0].lockdown.enclosure,  # a pool's are alike
            )
        except OSError as exc:
            for process in processes:
                process.close()
                why = f"its zygote is gone: {exc}"
                self._reactor.feed(m.ForkRefused(process.slot, why))
            return
        for process in processes:
            process.close_child_ends()
            self._forking[process.slot] = process

    def _refused(self, number: int, exc: OSError) -> None:
        """A child's files or descriptors cannot be had; some not at all any more."""
        self._reactor.feed(m.ForkRefused(number, f"no file for it: {exc}"))
        if isinstance(exc, FileNotFoundError):
            path = self._run.path
            self._reactor.feed(
                m.Drain(f"somebody has removed its run directory {path}")
            )

    # -- a zygote's answers --------------------------------------------------------

    def forked(self, number: int, pid: int) -> None:
        """The zygote has made the child: record it, then let it go."""
        process = self._forking.pop(number)
        try:
            process.attach(pid)
            self._run.write_slot(number, pid, process.start_time)
        except OSError as exc:
            # It waits for Go: its socket's end ends it, and the sweep reaps it.
            process.close()
            self._known(True)
            self._reactor.feed(m.ForkRefused(number, f"cannot record it: {exc}"))
            return
        self._known(False)
        slot = self._slots[number]
        settings, pool = self._zygotes.settings, self.pool_of(slot)
        for event in enclose(process, pool, self._group, self._reactor.clock.utc_ms()):
            self._reactor.tell(event)
        process.send(
            Go(
                slot_name=slot.name,
                run_id=self._run.run_id,
                memory_backstop_bytes=pool.limits.memory_bytes,
                result_max_bytes=settings.result_max_bytes,
                checkpoint_max_bytes=CHECKPOINT_MAX_BYTES,
                tmp_root=str(self._run.tmp_root),
                store_url=without_password(settings.store),
                lockdown=process.lockdown,
                queue_depth_max=settings.queue_depth_max,
                cgroup=process.group.path if process.group else "",
                is_for_one=pool.recycle_jobs == 1,
                hidden=(*files_of(settings.store), str(self._run.path.parent)),
            )
        )
        self._born(number, process)

    def fork_failed(self, number: int, message: str) -> None:
        """The zygote could not make the child."""
        if number in self._forking:
            self._forking.pop(number).close()
            self._known(False)
            self._reactor.feed(m.ForkRefused(number, message))
