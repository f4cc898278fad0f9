"""Hosts as far as jobpool sees them: clocks, process trees, run directories, death.

A tree is one child with everything that it starts. What leaves it (a daemon) becomes
an orphan, which only a sweep or a search for the run's marker finds. A process that
the kernel does not let go (disk sleep) dies when that is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jobpool.sandbox.protocol.messages import FromChild, RunJob
from jobpool.supervisor.maintenance.death_proof import Alive, DeadRun, Proof, Unproven
from simulation.hostmemory import Memory
from simulation.kernel import Kernel, Process
from support.store.history import Ended, Gone, Started

if TYPE_CHECKING:
    from simulation.world import World

EPOCH_MS = 1_800_000_000_000
DEATH_S = 0.002
IDLE_BYTES = 20 * 2**20
PROOF_WAIT_S = 0.5


class HostClock:
    """A host's clocks. The wall clock jumps; the monotonic one sleeps with it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.jumped_s = 0.0
        self.slept_s = 0.0

    def utc_ms(self) -> int:
        """See `core.clock.Clock`."""
        return EPOCH_MS + round((self._kernel.now_s + self.jumped_s) * 1000)

    def monotonic_s(self) -> float:
        """See `core.clock.Clock`."""
        return 1000.0 + self._kernel.now_s - self.slept_s

    def boottime_s(self) -> float:
        """See `core.clock.Clock`."""
        return 1000.0 + self._kernel.now_s


class StoreClock(HostClock):
    """A database server's own clock."""


class Orphan:
    """A process that has left its tree."""

    def __init__(self, job: int, token: int) -> None:
        self.alive = True
        self.stuck_until_s = 0.0
        self.job = job
        self.token = token


class Tree:
    """A child and all below it; what it does is `fates`' work."""

    def __init__(self, world: World, run: RunDir, slot: int, number: int) -> None:
        self.world = world
        self.run = run
        self.slot = slot
        self.name = f"{run.name}/{slot}.{number}"
        self.alive = True
        self.is_idle = False
        """It is set up, and waits for a ticket."""
        self.is_deaf = False
        """A handler of its own goes on after its end: it hears of nothing."""
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.frames: deque[RunJob] = deque()
        self.tickets: deque[int] = deque()
        self.running: RunJob | None = None
        self.age = 0
        """Attempts so far: what was planned for an earlier one comes to nothing."""
        self.guilt: set[str] = set()
        self.rss_bytes = IDLE_BYTES
        self.stuck_until_s = 0.0
        self.pipe_s = 0.0
        """When the last thing that it has sent arrives."""
        self.send: Callable[[FromChild | str], None] = lambda _frame: None
        self.waits: dict[int, Callable[[bool], None]] = {}
        """What it does with the answer to each request for a permit."""
        self.frozen = False
        """It was stopped: what it was about to do never happens."""
        self.on_end: Callable[[], None] = lambda: None

    def begin(self, frame: RunJob) -> None:
        """Begin an attempt: from now on it can be blamed for what happens."""
        self.running = frame
        self.age += 1
        self.guilt = set()
        self.waits.clear()
        self.run.marks.add(frame.token)
        self.world.note(
            Started(
                at_s=self.world.kernel.now_s,
                run=self.run.name,
                host=self.run.host.name,
                job=frame.id,
                token=frame.token,
                attempt=frame.attempt,
                child=self.name,
            )
        )

    def ended(self, cause: str, *, gave_up: bool = False) -> None:
        """The present attempt is over."""
        frame, self.running = self.running, None
        if frame is None:
            return
        if any(o.alive and o.token == frame.token for o in self.run.orphans):
            self.guilt.add("left")
        self.world.note(
            Ended(
                at_s=self.world.kernel.now_s,
                job=frame.id,
                token=frame.token,
                cause=cause,
                guilt=tuple(sorted(self.guilt)),
                gave_up=gave_up,
            )
        )

    def die(
        self, cause: str, *, signal: int | None = None, exit_code: int | None = None
    ) -> None:
        """The process ends; its own children below it as well."""
        kernel = self.world.kernel
        if not self.alive:
            return
        if kernel.now_s < self.stuck_until_s:
            kernel.at(
                self.stuck_until_s,
                lambda: self.die(cause, signal=signal, exit_code=exit_code),
                self.run.host.machine,
            )
            return
        self.alive = False
        self.signal, self.exit_code = signal, exit_code
        self.ended(cause)
        self.on_end()


class RunDir:
    """A supervisor's run directory: what outlives it."""

    def __init__(self, host: Host, name: str, process: Process) -> None:
        self.host = host
        self.name = name
        self.process = process
        self.boot_id = host.boot_id
        self.marks: set[int] = set()
        self.trees: list[Tree] = []
        self.orphans: list[Orphan] = []
        self.fence_s = float("inf")
        """Until when the leases hold, as a time since boot."""

    def survivors(self) -> Iterator[Tree | Orphan]:
        """Yield what lives of it, the supervisor apart."""
        yield from (tree for tree in self.trees if tree.alive)
        yield from (orphan for orphan in self.orphans if orphan.alive)

    def end_orphan(self, orphan: Orphan, world: World) -> None:
        """Kill one, if the kernel lets it die."""
        if orphan.alive and world.kernel.now_s >= orphan.stuck_until_s:
            orphan.alive = False
            world.note(
                Gone(at_s=world.kernel.now_s, job=orphan.job, token=orphan.token)
            )


class Host:
    """A machine that runs supervisors."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.boots = 1
        self.clock = HostClock(world.kernel)
        self.runs: dict[str, RunDir] = {}
        """Their run directories; they outlive a boot."""
        self.machine = Process(name)
        """Its children; stopped while the host sleeps."""
        self.asleep_s: float | None = None
        """Since when it is suspended."""
        self.goes_first: Callable[[], None] = lambda: None
        """What is done when it wakes up, before any clock is read."""
        self.oom_kills = 0
        self.memory = Memory(self)

    @property
    def boot_id(self) -> str:
        """The kernel's name for the time since it was booted."""
        return f"{self.name}#{self.boots}"

    def forget(self, run: str) -> None:
        """Remove a run directory."""
        self.runs.pop(run, None)

    def prove_dead(self, run: str, *, same_boot: bool) -> Proof:
        """Do as `maintenance.death_proof` does, in the caller's task."""
        kernel = self.world.kernel
        found = self.runs.get(run)
        if found is None:
            return Unproven("it cannot be read") if same_boot else DeadRun()
        if found.process.alive:
            return Alive()
        if not same_boot or found.boot_id != self.boot_id:
            return DeadRun()
        until_s, killed = kernel.now_s + PROOF_WAIT_S, 0
        while survivors := list(found.survivors()):
            if kernel.now_s >= until_s:
                kernel.sometimes["a dead run could not be proven dead"] += 1
                return Unproven(f"{len(survivors)} of its processes do not die")
            for one in survivors:
                if isinstance(one, Tree):
                    one.die("orphaned", signal=9)
                else:
                    found.end_orphan(one, self.world)
                killed += not one.alive
            kernel.sleep(DEATH_S)
        if killed:
            kernel.sometimes["survivors of a dead run were killed"] += 1
        return DeadRun(running_tokens=frozenset(found.marks), killed=killed)


class RunPath:
    """Stands for the directories below a host's run root, and for the root."""

    def __init__(self, root: RunPath | Host, *names: str) -> None:
        self.host: Host = root.host if isinstance(root, RunPath) else root
        self.name = names[-1] if names else ""

    def is_dir(self) -> bool:
        """Say whether a run directory is there."""
        return self.name in self.host.runs

    def iterdir(self) -> Iterator[RunPath]:
        """Yield the run directories."""
        return iter([RunPath(self, name) for name in self.host.runs])


def prove_dead(
    root: RunPath, run_id: str, *, same_boot: bool = True, killed: object = None
) -> Proof:
    """Stand in for `death_proof.prove_dead`."""
    del killed
    return root.host.prove_dead(run_id, same_boot=same_boot)


def remove_run(root: RunPath, run_id: str) -> None:
    """Stand in for `run_directory.remove_run`."""
    root.host.forget(run_id)
