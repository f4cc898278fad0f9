"""Harm to hosts, their networks and their server: first in calm weather, then a storm.

The storm deals its blows from packs of cards, shuffled by the seed: whoever strikes
two packs' worth has met every sort of blow, and not only by chance.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from many_hosts.history import Kill
from many_hosts.host import Host
from support.postgres.cutting_proxy import DOWN, UP
from support.postgres.server import OwnServer
from support.site.service import now_ms

TICK_S = 0.05
PATIENCE_S = 60.0
"""For what takes seconds in calm weather."""
BYTES_MAX = 1000
"""Until a cut: what a host sends or gets in less than a second."""
CUTS_AT_BYTES = 5
CUT_EVERY_S = 1.0
ARMED_S = 4.0
"""In which something must come along that an armed cut waits for."""
BEYOND_TTL_S = 3.0
"""A supervisor that is stopped for so much longer than the TTL is taken for dead."""
OUTLASTING = 4
"""Jobs that live longer than a lease: so many are enqueued before such a stop."""
LEAD_S = 2.5
"""In which these begin."""

Count = Callable[[str], int]
"""Returns how many leases a run holds."""


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until *condition* holds; return whether it did in time."""
    until_s = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < until_s:
        time.sleep(TICK_S)
    return holds


def kill_in_calm(
    hosts: Sequence[Host],
    times: int,
    *,
    run_of: dict[int, str],
    count_leases: Count,
) -> list[Kill]:
    """Kill one host after the other; start each again once its jobs are taken.

    Args:
        hosts: all up.
        times: how many kills of a host that held jobs.
        run_of: supervisors' processes and their runs.
        count_leases: of a run.

    Raises:
        RuntimeError: a host does not come to hold any job.
    """
    kills: list[Kill] = []
    turn = 0
    while len(kills) < times:
        host = hosts[turn % len(hosts)]
        turn += 1
        pid = host.pid

        def is_busy(pid: int | None = pid) -> bool:
            return pid in run_of and count_leases(run_of[pid]) > 0

        if not wait_for(is_busy, PATIENCE_S):
            lives = "lives" if host.pid else "has ended"
            raise RuntimeError(
                f"{host.name} leases nothing in calm weather; its supervisor {lives}, "
                "and --keep keeps its log"
            )
        run, at_ms = run_of[pid], now_ms()
        host.kill()
        if count_leases(run):  # else it had just ended its last job: not this time
            kills.append(Kill(run, at_ms, is_calm=True))
            # A run whose jobs nobody takes is the history check's to name.
            wait_for(lambda run=run: count_leases(run) == 0, PATIENCE_S)
        host.start()
    return kills


class Nemesis:
    """Strikes hosts that are well, and mends them again.

    Args:
        rng: decides everything.
        hosts: whom to harm.
        server: theirs.
        ttl_s: of leases.
        run_of: supervisors' processes and their runs.
        outlast: has so many jobs enqueued that live longer than a lease.
    """

    def __init__(
        self,
        rng: random.Random,
        hosts: Sequence[Host],
        server: OwnServer,
        *,
        ttl_s: float,
        run_of: dict[int, str],
        outlast: Callable[[int], None],
    ) -> None:
        self._rng, self._hosts, self._server = rng, hosts, server
        self._ttl_s, self._run_of, self._outlast = ttl_s, run_of, outlast
        self.blows: Counter[str] = Counter()
        self._killed: list[tuple[int | None, int]] = []
        self.missed = 0
        """Cuts that were armed, and nothing came along that they waited for."""
        self._harmed: set[str] = set()
        self._later: list[tuple[float, Callable[[], None]]] = []

    @property
    def kills(self) -> list[Kill]:
        """The kills so far of supervisors that had entered the store.

        One that had just done so may be seen there only after its death.
        """
        return [
            Kill(self._run_of[pid], at_ms)
            for pid, at_ms in self._killed
            if pid in self._run_of
        ]

    def rage(self, blows: int, seconds: float) -> None:
        """Strike so many times, evenly spread; then leave everything mended.

        It takes longer where no host is well when its turn has come.
        """
        began_s = time.monotonic()
        for number, strike in enumerate(self._deal(blows)):
            due_s = began_s + (number + self._rng.random()) * seconds / blows
            host = self._wait_for_host(due_s)
            self.blows[strike(host)] += 1
        while time.monotonic() < began_s + seconds or self._harmed:
            self._tend()
            time.sleep(TICK_S)

    def _deal(self, count: int) -> list[Callable[[Host], str]]:
        pack = [
            self._kill, self._kill, self._kill, self._stop, self._refuse, self._slow,
            self._cut, partial(self._cut_bytes, UP), partial(self._cut_bytes, DOWN),
            partial(self._cut_commit, delivered=False),
            partial(self._cut_commit, delivered=True),
            partial(self._swallow, 0.6, "shorter"),
            partial(self._swallow, 1.8, "longer"),
            partial(self._restart, "fast"), partial(self._restart, "immediate"),
        ]  # fmt: skip
        dealt: list[Callable[[Host], str]] = []
        while len(dealt) < count:
            dealt += self._rng.sample(pack, len(pack))
        return dealt[:count]

    def _wait_for_host(self, due_s: float) -> Host:
        """Tend the hosts until a moment at which one is well; return such a one."""
        while True:
            self._tend()
            well = [host for host in self._hosts if host.name not in self._harmed]
            if well and time.monotonic() >= due_s:
                return self._rng.choice(well)
            time.sleep(TICK_S)

    def _tend(self) -> None:
        """Do what is due, and start again what ended by itself."""
        now_s = time.monotonic()
        for item in sorted(
            (item for item in self._later if item[0] <= now_s), key=lambda item: item[0]
        ):
            self._later.remove(item)
            item[1]()
        for host in self._hosts:
            if host.name not in self._harmed:
                host.start()

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, act))

    def _mend_after(self, host: Host, seconds: float) -> None:
        """Until then nothing else happens to the host."""
        self._harmed.add(host.name)
        self._after(seconds, partial(self._mend, host))

    def _mend(self, host: Host) -> None:
        self.missed += host.proxy.is_armed
        host.proxy.heal()
        host.resume()
        host.start()
        self._harmed.discard(host.name)

    # -- blows -------------------------------------------------------------------------

    def _kill(self, host: Host) -> str:
        self._killed.append((host.pid, now_ms()))
        host.kill()
        self._mend_after(host, self._rng.uniform(0, 2 * self._ttl_s))
        return "supervisor killed"

    def _stop(self, host: Host) -> str:
        self._outlast(OUTLASTING)
        self._after(LEAD_S, host.pause)
        self._mend_after(host, LEAD_S + self._ttl_s + BEYOND_TTL_S)
        return "supervisor stopped for longer than the TTL"

    def _cut(self, host: Host) -> str:
        host.proxy.cut()
        return "connections cut"

    def _cut_bytes(self, direction: str, host: Host) -> str:
        for number in range(CUTS_AT_BYTES):
            count = self._rng.randint(1, BYTES_MAX)
            arm = partial(self._arm, host, count, direction)
            self._after(number * CUT_EVERY_S, arm)
        self._mend_after(host, CUTS_AT_BYTES * CUT_EVERY_S + ARMED_S)
        way = "to" if direction == UP else "from"
        return f"{CUTS_AT_BYTES} cuts at random bytes {way} the server"

    def _arm(self, host: Host, count: int, direction: str) -> None:
        self.missed += host.proxy.is_armed
        host.proxy.cut_after(count, direction)

    def _cut_commit(self, host: Host, *, delivered: bool) -> str:
        host.proxy.cut_at(b"COMMIT", delivered=delivered)
        self._mend_after(host, ARMED_S)
        return f"commit cut ({'answer' if delivered else 'request'} lost)"

    def _swallow(self, ttls: float, word: str, host: Host) -> str:
        host.proxy.black_hole()
        self._mend_after(host, ttls * self._ttl_s)
        return f"black hole {word} than the TTL"

    def _refuse(self, host: Host) -> str:
        host.proxy.refuse()
        self._mend_after(host, self._rng.uniform(0, self._ttl_s))
        return "connections refused"

    def _slow(self, host: Host) -> str:
        host.proxy.delay(self._rng.uniform(0.02, 0.4))
        self._mend_after(host, self._rng.uniform(1, 2) * self._ttl_s)
        return "network slowed"

    def _restart(self, mode: str, _: Host) -> str:
        self._server.restart(mode)
        return f"server restarted ({mode})"
