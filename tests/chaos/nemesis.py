"""The nemesis of a chaos run: strikes at random times and records each blow.

Theory of operation. Every sort of blow has its own rate. Blows overlap: a supervisor
may be killed while it is stopped, or while it starts. The same thread later repairs
what lasts. The seed decides everything except what a blow meets, which depends on the
machine: the history is the artefact, not the seed alone.
"""

import contextlib
import heapq
import itertools
import resource
import signal
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from chaos.crew import LEASE_TTL_S, send
from chaos.places import HARMED, LockedOut, wait_for
from support.postgres.cutting_proxy import DOWN, UP

PID_MAX = Path("/proc/sys/kernel/pid_max")
PIDS_FEW = 301
"""No process can be made but with the pid 300."""
TICK_S = 0.01
AGAIN_S = 0.3
BETWEEN_CALM_KILLS_S = 0.25
SETTLED_S = 1.0
LEASE_S_MAX = 30.0
RATES = {
    "child killed": 130,
    "child stopped": 10,
    "child stopped for good": 0.7,
    "zygote killed": 4,
    "zygote stopped": 2,
    "supervisor killed": 13,
    "supervisor stopped": 4,
    "store locked": 2,
    "clock shifted": 4,
    "descriptors exhausted": 2,
    "pids exhausted": 2,
    "disk full": 2,
    "server restarted": 1,
    "server killed": 1,
    "connections cut": 10,
    "connection cut at a random byte": 10,
    "black hole": 1,
}
"""Blows a minute."""
ONLY_ALONE = {"pids exhausted", "disk full"}
ONLY_SQLITE = {"disk full"}
ONLY_POSTGRES = {
    "server restarted",
    "server killed",
    "connections cut",
    "connection cut at a random byte",
    "black hole",
}
AT_STORE = {"store locked", "disk full", "outage"} | ONLY_POSTGRES
"""They may keep a supervisor from its store."""


class Blow(NamedTuple):
    """What was done to whom, and how long it lasted."""

    sort: str
    from_ns: int
    until_ns: int
    run: str | None = None
    slot: str | None = None
    pid: int = 0


class Nemesis:
    """Strikes until it is told to end, and then leaves everything repaired.

    Args:
        rng: decides everything.
        place: whose store and machine it harms.
        crew: the supervisors that it harms.
        without: sorts of blows to leave out.
    """

    def __init__(self, rng, place, crew, *, without=()):
        self._rng, self._place, self._crew = rng, place, crew
        self.blows: list[Blow] = []
        other = ONLY_SQLITE if place.shared else ONLY_POSTGRES
        alone = set() if place.is_alone else ONLY_ALONE
        self.left_out = sorted(set(without) | alone)
        self._rates = {
            sort: rate
            for sort, rate in RATES.items()
            if sort not in other | alone | set(without)
        }
        self._agenda: list[tuple[float, int, object]] = []
        self._numbers = itertools.count()
        self._struck: set[object] = set()
        self._hits, self._ahead = 0, -1
        self._strikes = {
            "child killed": self._kill_child,
            "child stopped": self._stop_child,
            "child stopped for good": self._stop_child_for_good,
            "zygote killed": self._kill_zygote,
            "zygote stopped": self._stop_zygote,
            "supervisor killed": self._kill_supervisor,
            "supervisor stopped": self._stop_supervisor,
            "store locked": self._lock,
            "clock shifted": self._shift,
            "descriptors exhausted": self._exhaust_descriptors,
            "pids exhausted": self._exhaust_pids,
            "disk full": self._fill_disk,
            "server restarted": self._restart_server,
            "server killed": self._kill_server,
            "connections cut": self._cut,
            "connection cut at a random byte": self._cut_byte,
            "black hole": self._swallow,
        }

    def rage(self, seconds):
        """Strike for so long; each sort at least once."""
        began_s = time.monotonic()
        for sort, rate in self._rates.items():
            first_s = min(self._rng.expovariate(rate / 60), seconds * 0.8)
            self._after(first_s, partial(self._recur, sort, began_s + seconds))
        self._tend_until(began_s + seconds)
        while self._agenda:
            self._tend_until(time.monotonic() + TICK_S)

    def rest(self, seconds):
        """Strike nothing for so long; restart what ended by itself."""
        self._tend_until(time.monotonic() + seconds)

    def measure(self, seconds, has_leased):
        """Kill children, then supervisors, one by one while nothing else goes wrong.

        Args:
            seconds: for how long; two thirds of it go to children.
            has_leased: says whether a run has leased a job.
        """
        until_s = time.monotonic() + seconds * 2 / 3
        while time.monotonic() < until_s:
            self._kill_child("child killed")
            self.rest(BETWEEN_CALM_KILLS_S)
        until_s = time.monotonic() + seconds / 3
        for member in itertools.cycle(self._crew):
            self._kill_supervisor("supervisor killed", member)
            self._struck.discard(member.name)
            self.rest(SETTLED_S)
            wait_for(lambda who=member: has_leased(who.find_run()), LEASE_S_MAX)
            if time.monotonic() > until_s:
                return

    def note(self, sort, from_ns, **where):
        """Record a blow that has just ended."""
        self._hits += 1
        self.blows.append(Blow(sort, from_ns, time.time_ns(), **where))

    def _tend_until(self, until_s):
        while time.monotonic() < until_s:
            while self._agenda and self._agenda[0][0] <= time.monotonic():
                heapq.heappop(self._agenda)[2]()
            for member in self._crew:
                if member.name not in self._struck:
                    with contextlib.suppress(BlockingIOError):  # no pid to be had
                        member.start()
            time.sleep(TICK_S)

    def _recur(self, sort, until_s):
        before = self._hits
        self._strikes[sort](sort)
        pause_s = self._rng.expovariate(self._rates[sort] / 60)
        if self._hits == before:  # no target was there, or it was struck so already
            pause_s = min(pause_s, AGAIN_S)
        if time.monotonic() + pause_s < until_s:
            self._after(pause_s, partial(self._recur, sort, until_s))

    def _after(self, seconds, act):
        when_s = time.monotonic() + seconds
        heapq.heappush(self._agenda, (when_s, next(self._numbers), act))

    def _lasting(self, sort, what, seconds, mend, *, from_ns=None, **where):
        """Repair it after a while; until then the same blow is not repeated."""
        self._hits += 1
        self._struck.add(what)
        from_ns = from_ns or time.time_ns()

        def end():
            mend()
            self._struck.discard(what)
            self.note(sort, from_ns, **where)

        self._after(seconds, end)

    # -- processes ---------------------------------------------------------------------

    def _a_child(self):
        children = [child for member in self._crew for child in member.children()]
        return self._rng.choice(children) if children else None

    def _kill_child(self, sort):
        child, from_ns = self._a_child(), time.time_ns()
        if child and send(child.pid, child.start_time, signal.SIGKILL):
            self.note(sort, from_ns, run=child.run, slot=child.slot, pid=child.pid)

    def _stop_child(self, sort):
        child = self._a_child()
        if child and send(child.pid, child.start_time, signal.SIGSTOP):
            self._lasting(
                sort,
                child,
                self._rng.uniform(0.05, 1.0),
                lambda: send(child.pid, child.start_time, signal.SIGCONT),
                run=child.run,
                slot=child.slot,
                pid=child.pid,
            )

    def _stop_child_for_good(self, sort):
        child, from_ns = self._a_child(), time.time_ns()
        if child and send(child.pid, child.start_time, signal.SIGSTOP):
            self.note(sort, from_ns, run=child.run, slot=child.slot, pid=child.pid)

    def _a_zygote(self):
        found = [
            (member.find_run(), *zygote)
            for member in self._crew
            for zygote in member.zygotes()
        ]
        return self._rng.choice(found) if found else (None, 0, None)

    def _kill_zygote(self, sort):
        (run, pid, start_time), from_ns = self._a_zygote(), time.time_ns()
        if pid and send(pid, start_time, signal.SIGKILL):
            self.note(sort, from_ns, run=run, pid=pid)

    def _stop_zygote(self, sort):
        run, pid, start_time = self._a_zygote()
        if pid and send(pid, start_time, signal.SIGSTOP):
            self._lasting(
                sort,
                pid,
                self._rng.uniform(0.1, 1.0),
                lambda: send(pid, start_time, signal.SIGCONT),
                run=run,
                pid=pid,
            )

    def _a_member(self, *, is_up=True):
        well = [
            member
            for member in self._crew
            if member.name not in self._struck and (member.pid or not is_up)
        ]
        return self._rng.choice(well) if well else None

    def _kill_supervisor(self, sort, member=None):
        if (member := member or self._a_member()) is None:
            return
        run, pid, from_ns = member.find_run(), member.pid, time.time_ns()
        member.kill()
        self.note(sort, from_ns, run=run, pid=pid)
        self._struck.add(member.name)
        self._after(self._rng.uniform(0, 1), lambda: self._struck.discard(member.name))

    def _stop_supervisor(self, sort):
        if (member := self._a_member()) is None:
            return
        beyond = self._rng.random() < 0.3
        seconds = LEASE_TTL_S + 3 if beyond else self._rng.uniform(0.1, 3)
        run, from_ns = member.find_run(), time.time_ns()
        member.pause()
        self._lasting(
            f"{sort} beyond the TTL" if beyond else sort,
            member.name,
            seconds,
            member.resume,
            from_ns=from_ns,
            run=run,
            pid=member.pid,
        )

    # -- the machine -------------------------------------------------------------------

    def _shift(self, sort):
        if (member := self._a_member(is_up=False)) is None:
            return
        self._ahead = -self._ahead
        shift_ms = self._ahead * self._rng.randint(12_000, 25_000)
        member.clock.shift(shift_ms)
        self._lasting(
            sort,
            (sort, member.name),
            self._rng.uniform(0.5, 3),
            lambda: member.clock.shift(0),
            run=member.find_run(),
        )

    def _exhaust_descriptors(self, sort):
        member = self._a_member()
        if member is None or (sort, member.name) in self._struck:
            return
        run, pid = member.find_run(), member.pid
        try:
            count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            few = (count + self._rng.randint(0, 2), before[1])
            resource.prlimit(pid, resource.RLIMIT_NOFILE, few)
        except OSError:
            return  # it has just ended

        def mend():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)

        lasts_s = self._rng.uniform(0.3, 2)
        self._lasting(sort, (sort, member.name), lasts_s, mend, run=run, pid=pid)

    def _exhaust_pids(self, sort):
        if self._struck & {sort, "store"}:  # a server could not be started again
            return
        before = PID_MAX.read_text()
        PID_MAX.write_text(str(PIDS_FEW))
        self._lasting(
            sort, sort, self._rng.uniform(0.3, 2), lambda: PID_MAX.write_text(before)
        )

    # -- the store ---------------------------------------------------------------------

    def _lock(self, sort):
        if self._struck & {"store"}:
            return
        stack, from_ns = contextlib.ExitStack(), time.time_ns()
        try:
            stack.enter_context(self._place.locked())
        except LockedOut:
            # Others have waited behind it: that was a lock, too.
            self.note(sort, from_ns)
        except HARMED:
            return
        else:
            lasts_s = self._rng.uniform(0.5, 4)
            self._lasting(sort, "store", lasts_s, stack.close, from_ns=from_ns)

    def _fill_disk(self, sort):
        if self._struck & {"store"}:
            return
        self._place.fill_disk()
        self._lasting(sort, "store", self._rng.uniform(0.5, 3), self._place.empty_disk)

    def _restart_server(self, sort):
        if self._struck & {"store", "pids exhausted"}:
            return
        from_ns = time.time_ns()
        self._place.server.restart(self._rng.choice(("fast", "immediate")))
        self.note(sort, from_ns)

    def _kill_server(self, sort):
        if self._struck & {"store", "pids exhausted"}:
            return
        self._place.server.kill()
        self._lasting(sort, "store", self._rng.uniform(0, 3), self._place.server.start)

    def _a_proxy(self):
        return self._rng.choice(list(self._place.proxies.values()))

    def _cut(self, sort):
        from_ns = time.time_ns()
        self._a_proxy().cut()
        self.note(sort, from_ns)

    def _cut_byte(self, sort):
        proxy = self._a_proxy()
        if ("byte", proxy) in self._struck:
            return
        proxy.cut_after(self._rng.randint(1, 3000), self._rng.choice((UP, DOWN)))
        self._lasting(sort, ("byte", proxy), 2.0, proxy.heal)

    def _swallow(self, sort):
        proxy = self._a_proxy()
        proxy.black_hole()
        self._lasting(
            sort, ("hole", proxy), LEASE_TTL_S * self._rng.uniform(0.3, 2), proxy.heal
        )
