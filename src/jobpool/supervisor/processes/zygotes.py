"""The pools' zygotes as processes: started, listened to, replaced, reaped.

Theory of operation. A pool has one zygote that forks for it. During a reload there is a
second one, which takes over once it has loaded the application. The former one stays
while it has children, because it guards them: it would kill their trees if this process
died.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jobpool.core.config.settings import PoolSettings, Settings
from jobpool.core.isolation.measures import Enclosure, variables
from jobpool.core.units import show_size
from jobpool.sandbox.handles.zygote import Zygote
from jobpool.sandbox.protocol.messages import Forked, ForkFailed, Loaded, LoadFailed
from jobpool.sandbox.system import reserve_fds
from jobpool.sandbox.system.procfs import process_start_time
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.reactor import Reactor

NEVER_S = float("inf")
CHECK_EVERY_S = 0.05
CLOSE_STEP_S = 0.002
CLOSE_S = 3.0
KILLED_S = 1.0
"""Longest wait for a killed zygote: one that waits for a dead disk may never die."""
LOAD_MEMORY_MIN_BYTES = 64 * 2**20
"""A smaller limit is refused later, once it is known what a bare child needs."""


@dataclass(slots=True, eq=False)
class _Kept:
    """A zygote and what is known of it."""

    zygote: Zygote
    pool: str
    load_until_s: float
    """It must have loaded by then; infinity: it has."""
    memory_bytes: int
    why: tuple[str, str] | None = None
    """Why it was killed or failed: a message and a traceback."""
    forking: set[int] = field(default_factory=set)
    """Slots that wait for a child from it."""
    children: set[int] = field(default_factory=set)
    """Pids of the children that it guards."""

    def kill(self, why: str) -> None:
        """Kill it; its loss is seen on its socket, and reported with the reason."""
        self.why = (why, "")
        self.zygote.kill()


class Zygotes:
    """The zygotes of all pools.

    Args:
        reactor: waits for their sockets and takes events.
        settings: which application, how long it may take to load.
        run_id: marks their processes.
    """

    def __init__(self, reactor: Reactor, settings: Settings, run_id: str) -> None:
        self._reactor = reactor
        self._run_id = run_id
        self.settings = settings
        self.fence = ""
        """The fence file, where leases end by time."""
        self.fenced: Callable[[], bool] = _unfenced
        """Says whether zygotes may just have killed children because of it."""
        self.cgroup = ""
        """The zygotes' cgroup, if there is one."""
        self._serving: dict[str, _Kept] = {}
        self._coming: dict[str, _Kept] = {}
        self._former: list[_Kept] = []
        self._unreaped: list[Zygote] = []
        self._check_s = NEVER_S
        self.oldest_start_time = 0
        """Start time of the first zygote; older processes are not ours."""
        self.on_forked: Callable[[int, int], None] = _nobody
        self.on_fork_failed: Callable[[int, str], None] = _nobody
        self._unguarded: dict[str, set[int]] = {}
        """Pids of children whose zygote has died, by pool."""

    # -- commands ------------------------------------------------------------------

    def start(self, pool: str) -> None:
        """Start a zygote for a pool and let it load the application."""
        settings = self._pool(pool)
        try:
            zygote = Zygote.start(
                pool=pool,
                run_id=self._run_id,
                app=self.settings.app,
                directory=self.settings.app_directory,
                preload=settings.preload,
                env=variables(settings),
                fence=self.fence,
                cgroup=self.cgroup,
            )
        except OSError as exc:
            reloading = pool in self._serving
            why = f"its zygote could not be started: {exc}"
            killed = isinstance(exc, ConnectionError)  # it died while it was started
            self._reactor.feed(
                inp.ZygoteLost(pool, why, reloading=reloading, killed=killed)
            )
            return
        self.oldest_start_time = self.oldest_start_time or zygote.start_time
        now_s = self._reactor.now_s()
        kept = _Kept(
            zygote,
            pool,
            load_until_s=now_s + self.settings.app_timeout_s,
            memory_bytes=max(settings.limits.memory_bytes, LOAD_MEMORY_MIN_BYTES),
        )
        self.drop(pool)
        (self._coming if pool in self._serving else self._serving)[pool] = kept
        self._check_s = now_s + CHECK_EVERY_S
        self._reactor.watch(zygote, lambda _mask: self._ready(kept))

    def fork(
        self, pool: str, slot: int, fds: Sequence[int], enclosure: Enclosure
    ) -> None:
        """Ask for a child.

        Raises:
            OSError: the zygote has died, or no descriptor was left; no child was made.
        """
        kept = self._serving.get(pool)
        if kept is None:
            raise ConnectionResetError(f"pool {pool} has no zygote")
        kept.zygote.fork(slot, fds, enclosure)
        kept.forking.add(slot)

    def kill(self, slot: int, message: str) -> None:
        """Kill the zygote that was asked for a slot's child; its loss is reported."""
        for kept in self._all():
            if slot in kept.forking:
                kept.kill(message)

    def take_over(self, pool: str) -> None:
        """Let the zygote that has reloaded fork for its pool from now on."""
        kept = self._coming.pop(pool, None)
        if kept is not None:
            self._former.append(self._serving[pool])
            self._serving[pool] = kept
            self.reaped(0)

    def drop(self, pool: str) -> None:
        """End the zygote that has reloaded."""
        kept = self._coming.pop(pool, None)
        if kept is not None:
            self._let_go(kept)

    def reaped(self, pid: int) -> None:
        """A child has been reaped; a former zygote without children may end."""
        for kept in (*self._serving.values(), *self._former):
            kept.children.discard(pid)
        for pids in self._unguarded.values():
            pids.discard(pid)
        for kept in [k for k in self._former if not k.children and not k.forking]:
            self._former.remove(kept)
            self._let_go(kept)

    def pids(self) -> set[int]:
        """Return the pids of zygotes."""
        self._unreaped = [z for z in self._unreaped if z.exit_status() is None]
        kept = {kept.zygote.pid for kept in self._all()}
        return kept | {zygote.pid for zygote in self._unreaped}

    def spared(self) -> list[int]:
        """Return the pids of zygotes, and the ids of this process's own threads.

        No handler may choose their cores: children inherit those of their zygote.
        """
        own = map(int, reserve_fds.with_reserve(os.listdir, "/proc/self/task"))
        return [*own, *(kept.zygote.pid for kept in self._all())]

    def close(self, patience_s: float = CLOSE_S) -> None:
        """End every zygote and reap it; children that are left die with it.

        Args:
            patience_s: one that has not ended by then is killed.
        """
        for kept in self._all():
            self._let_go(kept)
        self._reap(min(patience_s, CLOSE_S))
        # These may be stopped (SIGSTOP): kill them, so that the end need not wait.
        for zygote in self._reap(0.0):
            zygote.end()
        self._reap(KILLED_S)

    def _reap(self, patience_s: float) -> list[Zygote]:
        """Wait for the zygotes to end; return those that do not in that time."""
        until_s = self._reactor.now_s() + patience_s
        while left := [z for z in self._unreaped if z.exit_status() is None]:
            if self._reactor.now_s() >= until_s:
                break
            time.sleep(CLOSE_STEP_S)
        return left

    # -- the loop's side -------------------------------------------------------------

    def next_s(self) -> float:
        """Return when loading zygotes are to be checked."""
        return self._check_s

    def check(self, now_s: float) -> None:
        """Kill zygotes that load for too long or grow too large."""
        if now_s < self._check_s:
            return
        loading = [kept for kept in self._all() if kept.load_until_s < NEVER_S]
        for kept in loading:
            app, rss = self.settings.app, kept.zygote.rss_bytes()
            if now_s >= kept.load_until_s:
                kept.kill(
                    f"application {app} did not load within "
                    f"{self.settings.app_timeout_s:g} s; it must not wait for anything "
                    "while it is imported (or raise app_timeout)"
                )
            elif rss > kept.memory_bytes:
                kept.kill(
                    f"application {app} took {show_size(rss)} while it was imported, "
                    f"more than the {show_size(kept.memory_bytes)} that pool "
                    f"{kept.pool} allows a child; load less, or raise the limit"
                )
        self._check_s = now_s + CHECK_EVERY_S if loading else NEVER_S

    # -- events ----------------------------------------------------------------------

    def _ready(self, kept: _Kept) -> None:
        if kept not in self._all():
            return  # it was ended while this event waited
        frames = kept.zygote.receive()
        if frames is None:
            self._lost(kept)
            return
        for frame in frames:
            self._take(kept, frame)

    def _take(self, kept: _Kept, frame: object) -> None:
        match frame:
            case Loaded(report=report):
                kept.load_until_s = NEVER_S
                reloading = self._coming.get(kept.pool) is kept
                self._guard_orphans(kept)
                self._reactor.feed(inp.ZygoteLoaded(kept.pool, report, reloading))
            case LoadFailed(message=message, traceback=traceback):
                kept.why = (message, traceback)
            case Forked(slot=slot, pid=pid):
                kept.forking.discard(slot)
                kept.children.add(pid)
                self.on_forked(slot, pid)
            case ForkFailed(slot=slot, message=message):
                kept.forking.discard(slot)
                self.on_fork_failed(slot, message)
            case _:
                raise TypeError(f"unexpected {type(frame).__name__} from a zygote")

    def _guard_orphans(self, kept: _Kept) -> None:
        """Let a new zygote guard the children of one that was lost."""
        pids = self._unguarded.pop(kept.pool, set())
        members = [(pid, process_start_time(pid)) for pid in sorted(pids)]
        living = [(pid, start) for pid, start in members if start is not None]
        if living:
            kept.zygote.guard(living)
            kept.children |= {pid for pid, _start in living}

    def _lost(self, kept: _Kept) -> None:
        """A zygote has died; its children live on, as our own."""
        killed = kept.why is None and kept.zygote.was_killed()
        for slot in sorted(kept.forking):
            self.on_fork_failed(slot, "its zygote is gone")
        kept.forking.clear()
        self._unguarded.setdefault(kept.pool, set()).update(kept.children)
        self._let_go(kept)
        if kept in self._former:
            self._former.remove(kept)
            return
        reloading = self._coming.get(kept.pool) is kept
        if reloading:
            del self._coming[kept.pool]
        elif self._serving.get(kept.pool) is kept:
            del self._serving[kept.pool]
        else:
            return  # a reload that was overtaken by another
        how = (
            "was killed, by a user or because memory ran out"
            if killed
            else "ended by itself"
        )
        message, traceback = kept.why or (f"the zygote of pool {kept.pool} {how}", "")
        self._reactor.feed(
            inp.ZygoteLost(
                kept.pool, message, traceback, reloading=reloading, killed=killed
            )
        )

    # -- small parts -------------------------------------------------------------------

    def _let_go(self, kept: _Kept) -> None:
        self._reactor.unwatch(kept.zygote)
        if kept.load_until_s < NEVER_S:
            kept.zygote.kill()  # it imports and reads nothing; it has no child yet
        kept.zygote.close()
        self._unreaped.append(kept.zygote)

    def _all(self) -> list[_Kept]:
        return [*self._serving.values(), *self._coming.values(), *self._former]

    def _pool(self, name: str) -> PoolSettings:
        return next(pool for pool in self.settings.pools if pool.name == name)


def _unfenced() -> bool:
    return False


def _nobody(*_args: object) -> None:
    raise TypeError("no handler is set for this zygote's children")
