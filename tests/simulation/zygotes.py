"""The zygotes in virtual time: which forks, which guards, and the effect of their loss.

One serves each pool; a second one exists while the application is reloaded. A zygote
that dies leaves its children alive and unguarded until another one has loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobpool.core.config.settings import Settings
from jobpool.supervisor.machine import inputs as inp
from simulation.host import RunDir, Tree

if TYPE_CHECKING:
    from simulation.shell import SimReactor

NEVER_S = float("inf")
LOAD_S = 0.2


class SimZygotes:
    """`Zygotes` in virtual time: one per pool, a second while it is loaded anew."""

    def __init__(self, reactor: SimReactor, settings: Settings, run_id: str) -> None:
        self._reactor = reactor
        self._kernel = reactor.kernel
        self._made = 0
        self.settings = settings
        self.fence = ""
        self.fenced: Callable[[], bool] = lambda: False
        self.run: RunDir | None = None
        self.serving: dict[str, int] = {}
        """Number of the zygote that forks for a pool."""
        self.coming: dict[str, int] = {}
        self.children: dict[str, set[Tree]] = {}
        """The children that the zygotes of a pool guard."""
        self.unguarded: dict[str, set[Tree]] = {}
        self.forking: dict[str, set[int]] = {}
        self.on_fork_failed: Callable[[int, str], None] = lambda _n, _t: None
        reactor.process.on_death.append(self._supervisor_died)

    def start(self, pool: str) -> None:
        """See `Zygotes.start`."""
        self._made += 1
        number = self._made
        self.drop(pool)
        reloading = pool in self.serving
        (self.coming if reloading else self.serving)[pool] = number
        fails = self._reactor.process.steps and self.world.chance("load fails")

        def loaded() -> None:
            table = self.coming if reloading else self.serving
            if table.get(pool) != number:
                return
            if fails:
                del table[pool]
                self.world.sometimes["a zygote did not load"] += 1
                self._reactor.feed(
                    inp.ZygoteLost(pool, "it does not load", reloading=reloading)
                )
                return
            guarded = self.children.setdefault(pool, set())
            guarded |= {t for t in self.unguarded.pop(pool, set()) if t.alive}
            self._reactor.feed(inp.ZygoteLoaded(pool, self.world.report, reloading))

        self._kernel.after(LOAD_S, lambda: self._reactor.call(loaded))

    @property
    def world(self) -> Any:
        """The world that everything is in."""
        if self.run is None:
            raise RuntimeError("it belongs to no run yet")
        return self.run.host.world

    def kill(self, slot: int, message: str) -> None:
        """See `Zygotes.kill`."""
        for pool, slots in self.forking.items():
            if slot in slots:
                self.lose(pool, message)

    def lose(self, pool: str, message: str) -> None:
        """A zygote dies; its children live on."""
        number = self.serving.get(pool)
        if number is None:
            return
        self.unguarded.setdefault(pool, set()).update(self.children.pop(pool, set()))

        def lost() -> None:
            if self.serving.get(pool) != number:
                return
            del self.serving[pool]
            self.world.sometimes["a zygote was lost"] += 1
            for slot in sorted(self.forking.pop(pool, set())):
                self.on_fork_failed(slot, "its zygote is gone")
            self._reactor.feed(inp.ZygoteLost(pool, message, killed=True))

        self._kernel.after(0.001, lambda: self._reactor.call(lost))

    def take_over(self, pool: str) -> None:
        """See `Zygotes.take_over`."""
        number = self.coming.pop(pool, None)
        if number is not None:
            self.serving[pool] = number

    def drop(self, pool: str) -> None:
        """See `Zygotes.drop`."""
        self.coming.pop(pool, None)

    def next_s(self) -> float:
        """See `Zygotes.next_s`."""
        return NEVER_S

    def check(self, _now_s: float) -> None:
        """See `Zygotes.check`."""

    def close(self, _patience_s: float = 0.0) -> None:
        """See `Zygotes.close`."""
        self._end_children("supervisor")

    def check_fence(self) -> None:
        """Check the fence: end the children if their leases have expired."""
        run = self.run
        if run is None or run.host.clock.boottime_s() < run.fence_s:
            return
        if any(t.alive for pool in self.children.values() for t in pool):
            self.world.sometimes["zygotes ended children at the fence"] += 1
        self._end_children("fence")

    def _supervisor_died(self) -> None:
        self._kernel.after(
            0.001 + self._kernel.soon_s(), lambda: self._end_children("orphaned")
        )

    def _end_children(self, cause: str) -> None:
        for pool in self.children.values():
            for tree in sorted(pool, key=lambda tree: tree.name):
                tree.die(cause, signal=9)
