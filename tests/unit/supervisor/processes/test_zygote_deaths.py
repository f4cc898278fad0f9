"""A zygote that is killed, at whatever point of a start or a reload, costs nobody.

The real `Zygotes` and the real machine, in virtual time. Zygotes' processes are small
models of `sandbox.zygote`: what one does and when the supervisor reads of it are steps
of their own, so that a kill can fall between any two.
"""

import errno
import itertools
import random
from collections import deque
from types import SimpleNamespace

import msgspec
import pytest

from jobpool.core.application.app_report import AppReport
from jobpool.sandbox.protocol.messages import Branched, Forked, Loaded, Ready
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.processes import zygotes as module
from jobpool.supervisor.processes.kept_zygotes import NEVER_S
from jobpool.supervisor.processes.zygotes import Zygotes
from support.machine.world import MIB, World, pool

POOLS = "abc"
SLOTS = 2
IMPORT, REPORT, END = "import", "report", "end"
STEPS_MAX = 1000
PAIRS = 60
"""How many random orders with two deaths are tried."""


class Control:
    """The supervisor's end of the socket of a zygote that is to be forked."""

    def __init__(self):
        self.closed, self.process = False, None

    def close(self):
        self.closed = True
        if self.process is not None:
            self.process.close()


class Process:
    """A zygote's process, and the supervisor's handle of it."""

    host = None
    start_time = 1

    def __init__(self, name, first):
        self.pool, self.todo, self.inbox = name, deque([first]), deque()
        self.living, self.closed = True, False
        self.killed = self.by_others = False
        self.version, self.guarded = "", set()
        self.host.processes.append(self)
        self.pid = len(self.host.processes)

    @classmethod
    def start(cls, pool, run_id, **_how):
        return cls(pool, IMPORT)

    @classmethod
    def adopt(cls, pool, pid, control):
        process = cls.host.processes[pid - 1]
        assert (process.pool, process.living or process.by_others) == ("", True)
        assert not control.closed
        process.pool = pool
        return process

    def branch(self, number):
        if not self.living:
            raise BrokenPipeError("it is gone")
        control = Control()
        self.todo.append((number, control))
        return control

    def fork(self, slot, _fds, _enclosure):
        self.todo.append(slot)

    def guard(self, members):
        if self.living:
            self.guarded.update(pid for pid, _start in members)

    def act(self):
        """Do the next thing."""
        what = self.todo.popleft()
        match what:
            case "import":
                self.host.imports += 1
                self.version = self.host.report.version
                self.inbox.append(Loaded(self.host.report))
            case "report":
                self.inbox.append(Loaded(self.host.report))
            case "end":
                self.die()
            case (number, control):
                made = control.process = Process("", REPORT)
                made.version = self.version
                if control.closed:
                    made.close()
                self.inbox.append(Branched(number, made.pid))
            case slot:
                self.host.versions.append(self.version)
                self.guarded.add(pid := len(self.host.versions))
                self.inbox.append(Forked(slot, pid))

    def die(self):
        self.living = False
        self.todo.clear()
        self.guarded.clear()

    def receive(self):
        if self.inbox:
            return [self.inbox.popleft()]
        return [] if self.living else None

    def was_killed(self):
        return self.by_others

    def exit_status(self):
        return None if self.living else -9

    def rss_bytes(self):
        return 0

    def kill(self):
        self.killed = True
        self.die()

    def close(self):
        """It reads the end of its socket as the next thing."""
        self.closed = True
        if self.living:
            self.todo.clear()
            self.todo.append(END)


class Host(World):
    """The machine, its zygotes, and who is to do something next."""

    def __init__(self, monkeypatch):
        self.processes, self.imports = [], 0
        self.versions = []
        """Of the code in each child, by pid."""
        self.ready, self.fed = {}, deque()
        self.lost, self.not_shared, self.victims = [], [], []
        self.pids = {}
        self.zygotes = None
        self._before = []
        monkeypatch.setattr(Process, "host", self)
        monkeypatch.setattr(module, "Zygote", Process)
        monkeypatch.setattr(module, "process_start_time", lambda _pid: 1)
        super().__init__(*(pool(name=name, size=SLOTS) for name in POOLS))
        self.report = AppReport(
            handlers=self.report.handlers, version="v1", base_rss_bytes=20 * MIB
        )
        reactor = SimpleNamespace(
            clock=SimpleNamespace(utc_ms=lambda: 0),
            now_s=lambda: self.now_s,
            watch=self.ready.__setitem__,
            unwatch=lambda process: self.ready.pop(process, None),
            feed=self.feed,
            observe=self.not_shared.append,
        )
        self.zygotes = Zygotes(reactor, self.settings, "run")
        self.zygotes.on_forked = self._forked
        self.zygotes.on_fork_failed = lambda slot, message: self.feed(
            inp.ForkRefused(slot, message)
        )
        for command in self._before:
            self._do([command])

    def feed(self, event):
        self.fed.append(event)
        if isinstance(event, inp.ZygoteLost):
            self.lost.append(event)

    # -- as the loop ---------------------------------------------------------------

    def _do(self, commands):
        for command in commands:
            match command:
                case cmd.StartZygote() if self.zygotes is None:
                    self._before.append(command)
                case cmd.StartZygote(pool=name):
                    self.zygotes.start(name)
                case cmd.TakeOver(pool=name):
                    self.zygotes.take_over(name)
                case cmd.DropZygote(pool=name):
                    self.zygotes.drop(name)
                case cmd.Fork(slot=slot):
                    name = self.machine.slots[slot].pool
                    try:
                        self.zygotes.fork(name, slot, [], None)
                    except OSError as exc:
                        self.feed(inp.ForkRefused(slot, str(exc)))
                case _:
                    super()._do([command])

    def died(self, slot, **how):
        self.zygotes.reaped(self.pids.pop(slot))
        super().died(slot, **how)

    def _forked(self, slot, pid):
        self.pids[slot] = pid
        self.feed(inp.ChildForked(slot))
        self.feed(inp.FramesArrived(slot, [Ready(20 * MIB)]))

    def moves(self):
        """Return all that can happen next."""
        acts = [process.act for process in self.processes if process.todo]
        reads = [
            lambda process=process: self.ready[process](0)
            for process in self.processes
            if process in self.ready and (process.inbox or not process.living)
        ]
        steps = [lambda: self.step(self.fed.popleft())] if self.fed else []
        retries = [each.zygote_retry_s for each in self.machine.pools.values()]
        waits = [lambda: self.wait(0.2)] if any(retries) else []
        return steps + reads + acts + waits

    def settle(self, choose, deaths=(), until=lambda: False):
        """Let everything happen, in some order, with zygotes killed on the way.

        Returns how many steps that took.
        """
        deaths = list(deaths)
        for count in itertools.count():
            assert count < STEPS_MAX
            while deaths and deaths[0][0] == count:
                self.kill(deaths.pop(0)[1])
            moves = self.moves()
            if until():
                break
            if moves:
                choose(moves)()
            elif len(self.pids) < SLOTS * len(POOLS):
                self.wait(1.0)  # children are tried again
            else:
                break
        return count

    def kill(self, which):
        """A user kills a zygote: the one of this rank among those that live."""
        living = [each for each in self.processes if each.living]
        if which < len(living):
            victim = living[which]
            self.victims.append(victim)
            victim.by_others = True
            victim.die()

    def unguarded(self):
        """Return the children that no living zygote would end with the supervisor."""
        living = (each for each in self.processes if each.living)
        return set(self.pids.values()).difference(*(each.guarded for each in living))

    # -- what must be so -----------------------------------------------------------

    def check(self, imports):
        """Check that all pools serve and nothing else is left.

        Args:
            imports: how many there are if nobody is killed; each death may cost one.
        """
        assert self.finish is None
        assert all(each.zygote_up for each in self.machine.pools.values())
        living = [each for each in self.processes if each.living]
        assert sorted(each.pool for each in living) == sorted(POOLS)
        assert set(living) == set(self.ready)
        assert not any(each.closed for each in living)
        assert not self.zygotes.is_branching()
        by_pool = {each.pool: each.version for each in living}
        for slot, pid in self.pids.items():
            runs = self.versions[pid - 1]
            assert runs == by_pool[self.machine.slots[slot].pool]
        assert not self.unguarded()
        assert self.imports <= imports + len(self.victims)
        assert self.not_shared == []
        assert all(event.killed for event in self.lost)
        assert {one.pool for one in self.lost} <= {one.pool for one in self.victims}


def first(moves):
    """Take what came first."""
    return moves[0]


def last(moves):
    """Let time pass before anything, and zygotes go ahead as far as they can."""
    return moves[-1]


def start(monkeypatch):
    """Return the host of a start."""
    return Host(monkeypatch), 1


def reload(monkeypatch):
    """Return the host of a reload, after a start without deaths."""
    host = Host(monkeypatch)
    host.settle(first)
    host.step(inp.Entered())
    host.settings = msgspec.structs.replace(host.settings)
    host.zygotes.settings = host.settings
    host.report = msgspec.structs.replace(host.report, version="v2")
    host.feed(inp.Reload(host.settings))
    return host, 2


@pytest.mark.parametrize("order", [first, last])
@pytest.mark.parametrize("begin", [start, reload])
def test_a_zygote_killed_at_any_point_costs_nobody(monkeypatch, begin, order):
    """Whichever it is; of the others' pools none hears of a loss."""
    host, imports = begin(monkeypatch)
    steps = host.settle(order)
    host.check(imports)
    assert host.imports == imports
    tried = 0
    for step, which in itertools.product(range(steps), range(2 * len(POOLS))):
        host, imports = begin(monkeypatch)
        host.settle(order, [(step, which)])
        host.check(imports)
        tried += len(host.victims)
    assert tried > steps


@pytest.mark.parametrize("begin", [start, reload])
def test_two_deaths_in_any_order_of_events_cost_nobody(monkeypatch, begin):
    """Nor does the death of one that was to replace a killed one."""
    for seed in range(PAIRS):
        chance = random.Random(seed)
        host, imports = begin(monkeypatch)
        steps = sorted(chance.randrange(60) for _ in range(2))
        host.settle(chance.choice, [(step, chance.randrange(4)) for step in steps])
        host.check(imports)


def test_children_are_guarded_once_it_can_be_read_which_they_are(monkeypatch):
    """Without a free descriptor, not even a reserved one, it is tried again."""

    def refused(_pid):
        raise OSError(errno.EMFILE, "Too many open files")

    host = Host(monkeypatch)
    host.settle(first)
    host.kill(0)
    with monkeypatch.context() as scarce:
        scarce.setattr(module, "process_start_time", refused)
        host.settle(first)
    assert host.unguarded()
    assert host.zygotes.next_s() < NEVER_S
    host.zygotes.check(host.zygotes.next_s())
    assert not host.unguarded()
    assert host.zygotes.next_s() == NEVER_S


def test_the_children_of_a_former_zygote_are_guarded_by_the_next_one(monkeypatch):
    """It dies while they still run old code."""
    host, _imports = reload(monkeypatch)
    host.deaf_children = True  # none ends when it is asked to
    host.settle(first, until=lambda: len(host.zygotes._former) == len(POOLS))
    host.kill(0)
    host.settle(first, until=lambda: not host.moves())
    assert host.unguarded()
    assert host.zygotes.next_s() <= host.now_s
    host.zygotes.check(host.zygotes.next_s())
    assert not host.unguarded()
