"""The pools' zygotes as real processes: started, listened to, killed, mourned."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobpool.core.quantity import show_size
from jobpool.core.settings import PoolSettings, Settings
from jobpool.sandbox.frames import Forked, ForkFailed, FrameError, Loaded, LoadFailed
from jobpool.sandbox.spawner import Zygote, helper_pids
from jobpool.supervisor import messages as m
from jobpool.supervisor.reactor import Reactor

NEVER_S = float("inf")
LOOK_EVERY_S = 0.05
LOOK_MIN_S = 0.002
CLOSE_S = 3.0


@dataclass(slots=True)
class _Loading:
    """A zygote that has not yet reported."""

    until_s: float
    memory_bytes: int


class Zygotes:
    """One zygote a pool.

    Args:
        reactor: waits for their sockets and takes events.
        settings: which application, how long it may take to load.
        run_id: marks their processes.
    """

    def __init__(self, reactor: Reactor, settings: Settings, run_id: str) -> None:
        self._reactor = reactor
        self._settings = settings
        self._run_id = run_id
        self._pools: dict[str, PoolSettings] = {p.name: p for p in settings.pools}
        self._zygotes: dict[str, Zygote] = {}
        self._lost_ones: list[Zygote] = []
        """Gone, but not reaped yet."""
        self._loading: dict[str, _Loading] = {}
        self._why: dict[str, tuple[str, str]] = {}
        """Why a zygote that is about to be lost is lost."""
        self._look_s = NEVER_S
        self.oldest_start_time = 0
        """Start time of the first zygote; older processes are none of ours."""
        self.on_forked: Callable[[int, int], None] = _nobody
        self.on_fork_failed: Callable[[int, str], None] = _nobody
        self.on_lost: Callable[[str, str], None] = _nobody

    def start(self, pool: str) -> None:
        """Start a pool's zygote and let it load the application."""
        settings = self._pools[pool]
        zygote = Zygote.start(
            pool=pool,
            run_id=self._run_id,
            app=self._settings.app,
            directory=self._settings.app_directory,
            preload=settings.preload,
            env=settings.env,
        )
        if not self.oldest_start_time:
            self.oldest_start_time = zygote.start_time
        self._zygotes[pool] = zygote
        self._loading[pool] = _Loading(
            self._reactor.now_s() + self._settings.app_timeout_s,
            settings.limits.memory_bytes,
        )
        self._look_s = self._reactor.now_s() + LOOK_EVERY_S
        self._reactor.watch(zygote, lambda _mask: self._ready(pool))

    def fork(self, pool: str, slot: int, fds: Sequence[int]) -> None:
        """Ask for a child.

        Raises:
            OSError: the zygote is gone; no child was made.
        """
        zygote = self._zygotes.get(pool)
        if zygote is None:
            raise ConnectionResetError("no zygote")
        zygote.fork(slot, fds)

    def kill(self, pool: str, message: str) -> None:
        """Kill a zygote; that it is lost is reported with this message."""
        zygote = self._zygotes.get(pool)
        if zygote is not None:
            self._why[pool] = (message, "")
            zygote.kill()

    def pids(self) -> set[int]:
        """Return the pids of zygotes, and of what multiprocess started for them."""
        self._lost_ones = [z for z in self._lost_ones if z.exit_status() is None]
        zygotes = (*self._zygotes.values(), *self._lost_ones)
        return {zygote.pid for zygote in zygotes} | helper_pids()

    def next_s(self) -> float:
        """Return when a loading zygote is to be looked at."""
        return self._look_s

    def look(self, now_s: float) -> None:
        """Kill zygotes that load for too long or grow too large."""
        if now_s < self._look_s:
            return
        for pool, loading in self._loading.items():
            rss = self._zygotes[pool].rss_bytes()
            if now_s >= loading.until_s:
                self.kill(
                    pool,
                    f"application {self._settings.app} did not load within "
                    f"{self._settings.app_timeout_s:g} s; it must not wait for "
                    "anything while it is imported (or raise app_timeout)",
                )
            elif rss > loading.memory_bytes:
                self.kill(
                    pool,
                    f"application {self._settings.app} took {show_size(rss)} while it "
                    f"was imported, more than the {show_size(loading.memory_bytes)} "
                    f"that pool {pool} allows a child; load less, or raise the limit",
                )
        self._look_s = now_s + LOOK_EVERY_S if self._loading else NEVER_S

    def close(self) -> None:
        """Let every zygote end, and reap it; children that are left die with it."""
        zygotes = [*self._zygotes.values(), *self._lost_ones]
        for zygote in zygotes:
            zygote.close()
        until_s = self._reactor.now_s() + CLOSE_S
        while any(zygote.exit_status() is None for zygote in zygotes):
            if self._reactor.now_s() > until_s:
                return  # whoever is above us reaps them
            time.sleep(LOOK_MIN_S)

    def _ready(self, pool: str) -> None:
        zygote = self._zygotes[pool]
        try:
            frames = zygote.receive()
        except FrameError as exc:
            self._why.setdefault(pool, (f"its zygote sent garbage: {exc}", ""))
            zygote.kill()
            frames = None
        if frames is None:
            self._lost(pool, zygote)
            return
        for frame in frames:
            self._take(pool, frame)

    def _take(self, pool: str, frame: object) -> None:
        match frame:
            case Loaded(report=report):
                self._loading.pop(pool, None)
                self._reactor.feed(m.ZygoteLoaded(pool, report))
            case LoadFailed(message=message, traceback=traceback):
                self._loading.pop(pool, None)
                self._why[pool] = (message, traceback)
            case Forked(slot=slot, pid=pid):
                self.on_forked(slot, pid)
            case ForkFailed(slot=slot, message=message):
                self.on_fork_failed(slot, message)
            case _:
                raise TypeError(f"unexpected {type(frame).__name__} from a zygote")

    def _lost(self, pool: str, zygote: Zygote) -> None:
        """A zygote is gone; its children live on, as our own."""
        self._reactor.unwatch(zygote)
        zygote.close()
        self._lost_ones.append(self._zygotes.pop(pool))
        self._loading.pop(pool, None)
        by_itself = (f"the zygote of pool {pool} ended by itself", "")
        message, traceback = self._why.pop(pool, by_itself)
        self.on_lost(pool, message)
        self._reactor.feed(m.ZygoteLost(pool, message, traceback))


def _nobody(*_args: object) -> None:
    raise TypeError("nobody waits for this zygote's children")
