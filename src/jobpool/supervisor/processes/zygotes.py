"""The pools' zygotes as processes: started, listened to, replaced, reaped.

Theory of operation. A pool has one zygote that forks for it. Only the first one imports
the application. A pool whose children see the same variables, and that preloads too,
waits until it has, and then has its own zygote forked from it; so has a pool whose
zygote was lost, from any that still serves. One that fails to import fails for all that
wait; if it was killed, the next of them imports. Zygotes are shared only under the same
settings, so that a reload imports anew, once. During a reload there is a
second one, which takes over once it has loaded the application. The former one stays
while it has children, because it guards them: it would kill their trees if this process
died.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from jobpool.core.config.settings import PoolSettings, Settings
from jobpool.core.events.pools import ImportNotShared
from jobpool.core.isolation.measures import Enclosure, variables
from jobpool.core.units import show_size
from jobpool.sandbox.handles.zygote import Zygote
from jobpool.sandbox.protocol.messages import (
    Branched,
    Forked,
    ForkFailed,
    Loaded,
    LoadFailed,
)
from jobpool.sandbox.system import reserve_fds
from jobpool.sandbox.system.procfs import EXHAUSTED, process_start_time
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.processes.kept_zygotes import (
    NEVER_S,
    Kept,
    Waiting,
    load_memory_bytes,
    source_of,
)
from jobpool.supervisor.reactor import Reactor

CHECK_EVERY_S = 0.05
CLOSE_STEP_S = 0.002
CLOSE_S = 3.0
KILLED_S = 1.0
"""Longest wait for a killed zygote: one that waits for a dead disk may never die."""
BRANCH_S = 5.0
"""Longest wait for a fork of a zygote; sweeps wait for it, too."""


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
        self._serving: dict[str, Kept] = {}
        self._coming: dict[str, Kept] = {}
        self._former: list[Kept] = []
        self._waiting: dict[str, Waiting] = {}
        self._branches = 0
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
        dropped = self._drop(pool)
        self._start(pool)
        if dropped is not None:
            self._start_waiting_for(dropped)

    def _start(self, pool: str) -> None:
        source = self._source(pool)
        if isinstance(source, str):
            self._start_own(pool, source)
            return
        self._waiting[pool] = Waiting(source)
        allowed_bytes = load_memory_bytes(self._pool(pool))
        source.memory_bytes = max(source.memory_bytes, allowed_bytes)
        if source.load_until_s == NEVER_S:
            self._branch(pool)

    def _start_own(self, pool: str, why: str = "") -> None:
        """Start a zygote that imports the application by itself, and say why."""
        if why:
            at_ms = self._reactor.clock.utc_ms()
            self._reactor.observe(ImportNotShared(at_ms=at_ms, pool=pool, reason=why))
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
                commands=self.settings.commands,
            )
        except OSError as exc:
            reloading = pool in self._serving
            message = f"its zygote could not be started: {exc}"
            killed = isinstance(exc, ConnectionError)  # it died while it was started
            self._reactor.feed(
                inp.ZygoteLost(pool, message, reloading=reloading, killed=killed)
            )
            return
        self._keep(pool, zygote, own_import=why)

    def _keep(
        self, pool: str, zygote: Zygote, origin: str = "", own_import: str = ""
    ) -> None:
        """Listen to a zygote, and let it load."""
        self.oldest_start_time = self.oldest_start_time or zygote.start_time
        now_s = self._reactor.now_s()
        kept = Kept(
            zygote,
            pool,
            load_until_s=now_s + self.settings.app_timeout_s,
            memory_bytes=load_memory_bytes(self._pool(pool)),
            settings=self.settings,
            origin=origin,
            own_import=own_import,
        )
        (self._coming if pool in self._serving else self._serving)[pool] = kept
        self._check_s = now_s + CHECK_EVERY_S
        self._reactor.watch(zygote, lambda _mask: self._ready(kept))

    # -- forks of a zygote -----------------------------------------------------------

    def is_branching(self) -> bool:
        """Say whether a zygote may have been forked whose pid is not known yet."""
        return any(waiting.control for waiting in self._waiting.values())

    def _source(self, pool: str) -> Kept | str:
        """See `source_of`."""
        settings = {each.name: each for each in self.settings.pools}
        others = [
            kept
            for kept in (*self._serving.values(), *self._coming.values())
            if kept.settings is self.settings and kept.why is None
        ]
        return source_of(settings[pool], others, settings, self._run_id)

    def _branch(self, pool: str) -> None:
        """Have a pool's zygote forked from the one that it waits for."""
        waiting = self._waiting[pool]
        self._branches += 1
        waiting.number = self._branches
        try:
            waiting.control = waiting.source.zygote.branch(waiting.number)
        except ConnectionError:
            return  # it is gone: its loss starts this one anew
        except OSError as exc:
            self._import_alone(pool, f"another zygote could not be asked for: {exc}")
            return
        now_s = self._reactor.now_s()
        waiting.until_s = now_s + BRANCH_S
        self._check_s = min(self._check_s, now_s + CHECK_EVERY_S)

    def _branched(self, source: Kept, answer: Branched) -> None:
        pools = {one.number: pool for pool, one in self._waiting.items()}
        pool = pools.get(answer.number)
        if pool is None:
            return  # it was given up, and ends with its socket
        control = self._waiting[pool].control
        if not answer.pid or control is None:
            self._import_alone(pool, answer.message)
            return
        del self._waiting[pool]
        try:
            zygote = Zygote.adopt(pool, answer.pid, control)
        except OSError as exc:
            self._start_own(pool, f"its zygote could not be taken over: {exc}")
            return
        self._keep(pool, zygote, source.pool)

    def _import_alone(self, pool: str, why: str) -> None:
        self._waiting.pop(pool).close()
        self._start_own(pool, why)

    def _waiting_for(self, source: Kept) -> list[str]:
        return [pool for pool, one in self._waiting.items() if one.source is source]

    def _start_waiting_for(self, source: Kept) -> None:
        """Start those anew that waited for a zygote which is gone."""
        for pool in self._waiting_for(source):
            self.start(pool)

    # -- more commands ---------------------------------------------------------------

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
        if kept is None:
            return
        if pool in self._serving:  # else it died while the other one loaded
            self._former.append(self._serving[pool])
        self._serving[pool] = kept
        self.reaped(0)

    def drop(self, pool: str) -> None:
        """End the zygote that has reloaded, or is to be forked."""
        kept = self._drop(pool)
        if kept is not None:
            self._start_waiting_for(kept)

    def _drop(self, pool: str) -> Kept | None:
        waiting = self._waiting.pop(pool, None)
        if waiting is not None:
            waiting.close()
        kept = self._coming.pop(pool, None)
        if kept is not None:
            self._let_go(kept)
        return kept

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
        for pool in list(self._waiting):
            self._waiting.pop(pool).close()
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
        self._check_s = NEVER_S
        for kept in self._serving.values():
            if kept.pool in self._unguarded and kept.load_until_s == NEVER_S:
                self._guard_orphans(kept)
        loading = [kept for kept in self._all() if kept.load_until_s < NEVER_S]
        for kept in loading:
            app, rss = self.settings.app, _rss_bytes(kept.zygote)
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
        for pool, waiting in list(self._waiting.items()):
            if now_s >= waiting.until_s:
                seen = f"no zygote was forked for it within {BRANCH_S:g} s"
                self._import_alone(pool, seen)
        if loading or self.is_branching():
            self._check_s = now_s + CHECK_EVERY_S

    # -- events ----------------------------------------------------------------------

    def _ready(self, kept: Kept) -> None:
        if kept not in self._all():
            return  # it was ended while this event waited
        frames = kept.zygote.receive()
        if frames is None:
            self._lost(kept)
            return
        for frame in frames:
            self._take(kept, frame)

    def _take(self, kept: Kept, frame: object) -> None:
        match frame:
            case Loaded(report=report):
                kept.load_until_s = NEVER_S
                reloading = self._coming.get(kept.pool) is kept
                self._guard_orphans(kept)
                self._reactor.feed(
                    inp.ZygoteLoaded(kept.pool, report, reloading, kept.own_import)
                )
                for pool in self._waiting_for(kept):
                    self._branch(pool)
            case Branched():
                self._branched(kept, frame)
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

    def _guard_orphans(self, kept: Kept) -> None:
        """Let a zygote guard the children of one that was lost, now or soon."""
        pids = self._unguarded.get(kept.pool, set())
        try:
            members = [(pid, process_start_time(pid)) for pid in sorted(pids)]
        except OSError as exc:
            if exc.errno not in EXHAUSTED:
                raise
            self._check_s = self._reactor.now_s() + CHECK_EVERY_S
            return
        self._unguarded.pop(kept.pool, None)
        living = [(pid, start) for pid, start in members if start is not None]
        if living:
            kept.zygote.guard(living)
            kept.children |= {pid for pid, _start in living}

    def _lost(self, kept: Kept) -> None:
        """A zygote has died; its children live on, as our own."""
        killed = kept.why is None and kept.zygote.was_killed()
        for slot in sorted(kept.forking):
            self.on_fork_failed(slot, "its zygote is gone")
        kept.forking.clear()
        self._unguarded.setdefault(kept.pool, set()).update(kept.children)
        was_loading = kept.load_until_s < NEVER_S
        self._let_go(kept)
        reloading = self._coming.get(kept.pool) is kept
        if reloading:
            del self._coming[kept.pool]
        elif self._serving.get(kept.pool) is kept:
            del self._serving[kept.pool]
        else:  # a former one, or a reload that was overtaken by another
            self._former = [one for one in self._former if one is not kept]
            self._check_s = self._reactor.now_s()  # another one may guard them
            self._start_waiting_for(kept)
            return
        if kept.origin and was_loading and kept.why is not None:
            self._start_own(kept.pool, kept.why[0])
            return
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
        if killed or not was_loading:
            self._start_waiting_for(kept)
            return
        for pool in self._waiting_for(kept):  # for them it would fail likewise
            self._waiting.pop(pool).close()
            reloading = pool in self._serving
            self._reactor.feed(
                inp.ZygoteLost(pool, message, traceback, reloading=reloading)
            )

    # -- small parts -------------------------------------------------------------------

    def _let_go(self, kept: Kept) -> None:
        self._reactor.unwatch(kept.zygote)
        if kept.load_until_s < NEVER_S:
            kept.zygote.kill()  # it imports and reads nothing; it has no child yet
        kept.zygote.close()
        self._unreaped.append(kept.zygote)

    def _all(self) -> list[Kept]:
        return [*self._serving.values(), *self._coming.values(), *self._former]

    def _pool(self, name: str) -> PoolSettings:
        return next(pool for pool in self.settings.pools if pool.name == name)


def _rss_bytes(zygote: Zygote) -> int:
    """Return a zygote's memory; 0 if it cannot be read now: it is read again soon."""
    try:
        return zygote.rss_bytes()
    except OSError as exc:
        if exc.errno not in EXHAUSTED:
            raise
        return 0


def _unfenced() -> bool:
    return False


def _nobody(*_args: object) -> None:
    raise TypeError("no handler is set for this zygote's children")
