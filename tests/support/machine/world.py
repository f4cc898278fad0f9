"""A small world for the supervisor's core: it answers commands like an ideal host.

No process, no store, no clock: forks succeed, leases come from a list, settlements
are accepted. Tests script what children do.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.settings import KindSettings, PoolSettings, Settings
from jobpool.core.events.event import Event
from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.rules.limits import Limits, PoolLimits
from jobpool.core.rules.policy import Policy
from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.sandbox.protocol.messages import Done, Raised, Ready, Retire, RunJob
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.machine import Machine
from jobpool.supervisor.machine.state.backpressure import is_large
from jobpool.supervisor.machine.state.slot import Assigned

MIB = 2**20
EVERYBODY = frozenset(range(10_000))
"""More tokens than any test here gives out."""


def pool(name: str = "cpu", size: int = 2, **fields: object) -> PoolSettings:
    """Return a pool's settings."""
    size_max = fields.pop("size_max", size)
    limits = fields.pop("limits", PoolLimits(timeout_s=60.0, memory_bytes=512 * MIB))
    return PoolSettings(
        name=name,
        size_min=size,
        size_max=size_max,  # type: ignore[arg-type]
        limits=limits,  # type: ignore[arg-type]
        **fields,  # type: ignore[arg-type]
    )


def done_of(job: Assigned, *, error: Raised | None = None, **fields: object) -> Done:
    """Return a child's report of its attempt's end."""
    base = {
        "seq": job.seq,
        "token": job.lease.token,
        "ok": error is None,
        "result": b"null",
        "duration_s": 0.001,
        "cpu_s": 0.001,
        "rss_bytes": 20 * MIB,
        "peak_rss_bytes": 21 * MIB,
        "error": error,
    }
    return Done(**(base | fields))  # type: ignore[arg-type]


class World:
    """A machine and what surrounds it."""

    def __init__(
        self,
        *pools: PoolSettings,
        policy: Policy | None = None,
        limits: Limits | None = None,
        burst: bool = False,
        kinds: Mapping[str, KindSettings] | None = None,
        quotas: tuple[Quota, ...] = (),
        needs: tuple[Need, ...] = (),
        schedules: tuple[Declared, ...] = (),
        details: bool = False,
    ) -> None:
        self.settings = Settings(
            store="sqlite:////tmp/x.db",
            app="jobs",
            app_directory="/",
            pools=pools or (pool(),),
            kinds=kinds or {},
        )
        self.report = AppReport(
            handlers=tuple(
                HandlerSpec(
                    kind=f"{p.name}.work",
                    pool=p.name,
                    policy=policy or Policy(),
                    limits=limits or Limits(),
                    needs=needs,
                )
                for p in self.settings.pools
            ),
            quotas=quotas,
            schedules=schedules,
            version="v1",
            base_rss_bytes=20 * MIB,
        )
        self.registries = 0
        self.machine = Machine(
            self.settings,
            pid=1,
            on_registry=self._registry,
            burst=burst,
            details=details,
        )
        self.now_s = 100.0
        self.slept_s = 0.0
        """How long its host has slept; `now_s` stood still then."""
        self.queue: dict[str, deque[Lease]] = {
            p.name: deque() for p in self.settings.pools
        }
        self.leases: dict[int, Lease] = {}
        self.takes_back = False
        """Jobs that are handed back can be leased again, the first ones first."""
        self.commands: list[cmd.Command] = []
        self.settled: list[Settlement] = []
        self.said: list[Event] = []
        self.sent: dict[int, list[RunJob]] = {}
        self.finish: cmd.Finish | None = None
        self.hold_settled = False
        self.hold_grants = False
        self._held_grant: inp.Granted | None = None
        self.deaf_forks = False
        self.deaf_children = False
        """They neither end when asked to nor begin what they are sent."""
        self.marked: set[int] | None = None
        """What the marks of every slot say; None: nothing can be told."""
        self._tokens = 0
        self._do(self.machine.start(self.now_s, 0))

    def _registry(self, _registry: object) -> None:
        self.registries += 1

    # -- scripting ---------------------------------------------------------------

    def up(self) -> World:
        """Load the application in every pool and enter the run."""
        for name in self.machine.pools:
            self.step(inp.ZygoteLoaded(name, self.report))
        self.step(inp.Entered())
        return self

    def job(self, pool_name: str = "cpu", **fields: object) -> Lease:
        """Put a job in the store's queue."""
        self._tokens += 1
        usual = {"kind": f"{pool_name}.work", "payload": b"{}", "attempt": 1}
        lease = Lease(
            id=self._tokens,
            token=self._tokens,
            pool=pool_name,
            **(usual | fields),  # type: ignore[arg-type]
        )
        self.queue[pool_name].append(lease)
        self.leases[lease.id] = lease
        return lease

    def fast(self) -> World:
        """Let one job after another end in the first slot, until their kind is fast."""
        for _ in range(16):
            self.job()
            self.notify()
            self.done(0)
        assert self.machine.pools["cpu"].durations.fast
        return self

    def stream(self) -> World:
        """Let the first child have four jobs at once, and nothing be settled yet."""
        self.fast()
        for _ in range(4):
            self.job()
        self.notify()
        assert len(self.machine.slots[0].queue) == 4
        self.settled.clear()
        return self

    def notify(self) -> None:
        """Say that there are jobs."""
        self.step(inp.Notified())

    def wait(self, seconds: float) -> None:
        """Let time pass; every deadline on the way is kept."""
        until_s = self.now_s + seconds
        while (moment_s := self.machine.next_deadline_s()) <= until_s:
            self.now_s = max(self.now_s, moment_s)
            self.step(inp.Tick())
        self.now_s = until_s
        self.step(inp.Tick())

    def done(self, slot: int, *, error: Raised | None = None, **fields: object) -> None:
        """The child of a slot ends its running attempt."""
        frame = done_of(self.machine.slots[slot].queue[0], error=error, **fields)
        self.step(inp.FramesArrived(slot, [frame]))

    def recalled(self, slot: int, jobs: Iterable[Assigned] = ()) -> None:
        """A recall brings these jobs back, and no other that the child was sent."""
        seqs = tuple(job.seq for job in jobs)
        marked = None if self.marked is None else frozenset(self.marked)
        self.step(inp.Recalled(slot, seqs, self.machine.slots[slot].seq, marked))

    def died(
        self,
        slot: int,
        *,
        signal: int | None = None,
        code: int | None = None,
        never_begun: tuple[int, ...] = (),
        host_oom: bool = False,
        marked: frozenset[int] | None = EVERYBODY,
    ) -> None:
        """The child of a slot is gone; the attempt sent to it has left its mark."""
        self.step(
            inp.ChildExited(
                slot=slot,
                exit=Exit(exit_code=code, signal=signal),
                never_begun=never_begun,
                host_oom=host_oom,
                marked=marked,
            )
        )

    def answer_grant(self) -> None:
        """Let the store's answer arrive that was held."""
        assert self._held_grant is not None
        self.step(self._held_grant)

    def took(self, kind: type) -> list[cmd.Command]:
        """Return the commands of one kind so far, and forget them."""
        found = [c for c in self.commands if isinstance(c, kind)]
        self.commands = [c for c in self.commands if not isinstance(c, kind)]
        return found

    # -- the ideal host -----------------------------------------------------------

    def step(self, event: inp.SupervisorEvent) -> None:
        """Take one event, and answer what follows from it."""
        now_ms = round(self.now_s * 1000)
        self._do(self.machine.step(event, self.now_s, now_ms, self.slept_s))

    def _do(self, commands: list[cmd.Command]) -> None:
        for command in commands:
            self.commands.append(command)
            match command:
                case cmd.Fork(slot=slot) if not self.deaf_forks:
                    self.step(inp.ChildForked(slot))
                    self.step(inp.FramesArrived(slot, [Ready(20 * MIB)]))
                case cmd.Lease():
                    self._answer(inp.Granted(command.wanted, self._grant(command)))
                case cmd.Assign(slot=slot, frames=frames):
                    self.sent.setdefault(slot, []).extend(frames)
                case cmd.Send(slot=slot, frame=Retire()) if not self.deaf_children:
                    self.died(slot, code=0)
                case cmd.Recall(slot=slot):
                    self._recall(slot)
                case cmd.Settle(settlements=settlements):
                    self._settle(settlements)
                case cmd.Observe(event=event):
                    self.said.append(event)
                case cmd.Finish():
                    self.finish = command
                case _:
                    pass

    def _recall(self, slot: int) -> None:
        """A child that was sent one job has begun it; tests decide for several."""
        if len(self.machine.slots[slot].queue) == 1 and not self.deaf_children:
            self.recalled(slot)

    def _settle(self, settlements: Iterable[Settlement]) -> None:
        for settlement in settlements:
            self.settled.append(settlement)
            self._take_back(settlement)
            if not self.hold_settled:
                self.written(settlement)

    def written(self, settlement: Settlement) -> None:
        """Let the store report that an end is written."""
        large = (settlement.token,) if is_large(settlement) else ()
        self.step(inp.Settled(1, large=large))

    def _take_back(self, settlement: Settlement) -> None:
        if self.takes_back and settlement.outcome is None:
            lease = self.leases[settlement.id]
            insort(self.queue[lease.pool], lease, key=lambda one: one.id)

    def _answer(self, granted: inp.Granted) -> None:
        if self.hold_grants:
            self._held_grant = granted
        else:
            self.step(granted)

    def _grant(self, asked: cmd.Lease) -> LeaseBatch:
        leases: list[Lease] = []
        for name, count in asked.wanted.items():
            queue, passed_over = self.queue[name], []
            while queue and count > 0:
                lease = queue.popleft()
                if lease.kind in asked.held or (lease.suspect and not asked.suspects):
                    passed_over.append(lease)
                    continue
                leases.append(lease)
                count -= 1  # noqa: PLW2901 - what is left of it
            queue.extendleft(reversed(passed_over))
        return LeaseBatch(leases=tuple(leases))
