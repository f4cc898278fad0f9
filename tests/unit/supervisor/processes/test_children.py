"""When a slot's death is reported: once no process can belong to its tree.

A child that is just being forked may be mistaken: its pid is not known yet. The
children and their zygotes are fakes; what waits for what is the supervisor's own.
"""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from jobpool.core.config.settings import SentrySettings
from jobpool.sandbox.cgroups.memory_left import MemoryLeft
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.processes import children as module
from jobpool.supervisor.processes.children import SWEEP_AGAIN_S, Children
from support.machine.world import World, pool

KILLED = Exit(signal=signal.SIGKILL)


class Child:
    """A child's process, as far as reaping it needs one."""

    is_populated = False
    wants_write = False
    group = None
    below = ()
    fds_for_child = ()
    start_time = 1
    job_pid = 0
    mark_path = "/nowhere"

    def __init__(self, number, slot_name, _mark, lockdown):
        self.number, self.slot_name, self.lockdown = number, slot_name, lockdown
        self.pid, self.pidfd = 0, f"pidfd of {slot_name}"
        self.sent = []

    def attach(self, pid):
        self.pid = pid

    def reap(self):
        return KILLED

    def output_tail(self, _size):
        return b""

    def stack_text(self):
        return ""

    def recall(self):
        return []

    def receive(self):
        return None

    def send(self, *frames):
        self.sent += frames

    def close_child_ends(self):
        pass

    def close(self):
        pass


class Loop:
    """A reactor whose clock stands still; its watches are triggered by hand."""

    def __init__(self):
        self.time_s = 100.0
        self.clock = SimpleNamespace(utc_ms=lambda: 0)
        self.fed, self.ready = [], {}
        self.watch = self.ready.__setitem__

    def __len__(self):
        return len(self.fed)

    def now_s(self):
        return self.time_s

    def feed(self, event):
        self.fed.append(event)

    def unwatch(self, what):
        self.ready.pop(what, None)

    def observe(self, _event):
        pass

    def reaped(self):
        """Return the slots whose death was told."""
        return [event.slot for event in self.fed if type(event) is inp.ChildExited]


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def children(loop, monkeypatch):
    """Two slots: the child of the first one lives, the second one has none."""
    monkeypatch.setattr(module, "ChildProcess", Child)
    monkeypatch.setattr(module, "sweep_orphans", lambda _known, _oldest: frozenset())
    world = World(pool(size=2))
    zygotes = SimpleNamespace(
        settings=world.settings,
        oldest_start_time=1,
        fork=lambda *_args: None,
        pids=set,
        is_branching=lambda: False,
        spared=list,
        reaped=lambda _pid: None,
        fenced=lambda: False,
    )
    run = SimpleNamespace(
        run_id="r",
        path=Path("/nowhere/r"),
        tmp_root="/nowhere",
        mark_path=lambda _number: "",
        write_slot=lambda *_args: None,
    )
    made = Children(
        loop,
        zygotes,
        run,
        slots=world.machine.slots,
        lockdown=lambda _pool: SimpleNamespace(enclosure=None),
        memory=MemoryLeft(()).look,
    )
    made.fork(0)
    made.forked(0, 50)
    made.check(loop.now_s())
    return made


def die(loop):
    """Let the first slot's child end."""
    loop.ready["pidfd of cpu/0"](0)


def test_children_leave_reports_only_if_the_start_began_to_send_them(children):
    """A reload does not begin: what they would leave was lost."""
    zygotes = children._zygotes
    sentry = SentrySettings(dsn="environment")
    zygotes.settings = replace(zygotes.settings, sentry=sentry)
    children.fork(1)
    children.forked(1, 51)
    assert [go.sends_reports for go in children._processes[1].sent] == [False]


def test_a_death_is_reported_at_once(children, loop):
    """If nothing else is being forked, nothing is waited for."""
    die(loop)
    assert loop.reaped() == [0]


def test_a_death_is_not_reported_while_a_child_is_forked(children, loop):
    """Its pid is not known yet: it would look like an orphan of the dead child."""
    children.fork(1)
    die(loop)
    loop.time_s = children.next_s()
    assert loop.time_s == pytest.approx(100.0 + SWEEP_AGAIN_S)
    children.check(loop.time_s)
    assert loop.reaped() == []


@pytest.mark.parametrize("answer", ["forked", "fork_failed"])
def test_the_answer_to_a_fork_ends_the_wait(children, loop, answer):
    """Whatever it is: no timer has to expire before a death is reported."""
    children.fork(1)
    die(loop)
    getattr(children, answer)(1, {"forked": 51, "fork_failed": "no pids"}[answer])
    assert children.next_s() <= loop.now_s()
    children.check(loop.now_s())
    assert loop.reaped() == [0]


def test_a_fork_that_cannot_be_recorded_ends_the_wait_too(children, loop, monkeypatch):
    """Its child ends by itself, and is no orphan of another."""

    def refuse(_self, _pid):
        raise OSError("no descriptors")

    monkeypatch.setattr(Child, "attach", refuse)
    children.fork(1)
    die(loop)
    children.forked(1, 51)
    assert children.next_s() <= loop.now_s()
    children.check(loop.now_s())
    assert loop.reaped() == [0]


def test_a_fork_causes_no_sweep_if_no_child_is_dead(children, loop):
    """A sweep checks every process of the machine that is ours."""
    before_s = children.next_s()
    children.fork(1)
    children.forked(1, 51)
    assert children.next_s() == before_s > loop.now_s()
