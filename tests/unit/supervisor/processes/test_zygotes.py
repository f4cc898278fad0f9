"""Which zygotes import the application, and which are forked from another.

The zygotes' processes are fakes that say what a test lets them say.
"""

import errno
import socket
from types import SimpleNamespace

import msgspec
import pytest

from jobpool.core.application.app_report import AppReport
from jobpool.sandbox.protocol.messages import Branched, Loaded, LoadFailed
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.processes import zygotes as module
from jobpool.supervisor.processes.kept_zygotes import NEVER_S
from jobpool.supervisor.processes.zygotes import BRANCH_S, Zygotes
from support.machine.world import World, pool

REPORT = AppReport(handlers=(), version="v")


class Process:
    """A zygote's process."""

    made: list
    rss = 0
    start_time = 1

    def __init__(self, name, origin):
        self.pool, self.origin = name, origin
        self.asked, self.inbox = [], []
        self.killed = self.closed = False
        self.was_killed_by_others = False
        self.made.append(self)
        self.pid = len(self.made)

    @classmethod
    def start(cls, pool, run_id, **_how):
        return cls(pool, None)

    @classmethod
    def adopt(cls, pool, pid, control):
        control.close()
        return cls(pool, pid)

    def branch(self, number):
        self.asked.append(number)
        return socket.socket()

    def receive(self):
        said, self.inbox = self.inbox, []
        return None if None in said else said

    def rss_bytes(self):
        return self.rss

    def was_killed(self):
        return self.was_killed_by_others

    def exit_status(self):
        return 0 if self.closed else None

    def kill(self):
        self.killed = True

    def close(self):
        self.closed = True


class Loop:
    """A reactor whose clock stands still."""

    def __init__(self):
        self.time_s = 0.0
        self.clock = SimpleNamespace(utc_ms=lambda: 0)
        self.fed, self.seen, self.ready = [], [], {}
        self.feed, self.observe = self.fed.append, self.seen.append
        self.watch = self.ready.__setitem__

    def now_s(self):
        return self.time_s

    def unwatch(self, what):
        self.ready.pop(what, None)

    def say(self, process, *messages):
        """Let a zygote say something."""
        process.inbox += messages
        self.ready[process](0)

    def end(self, process):
        """Let a zygote end."""
        self.say(process, None)

    def losses(self):
        return [event for event in self.fed if type(event) is inp.ZygoteLost]

    def loaded(self):
        return [event for event in self.fed if type(event) is inp.ZygoteLoaded]

    def up(self):
        return [event.pool for event in self.loaded()]


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(module, "Zygote", Process)
    monkeypatch.setattr(Process, "made", [], raising=False)
    return Process.made


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def zygotes(made, loop):
    """Three pools whose zygotes have been asked for; the first one imports."""
    settings = World(*(pool(name=name) for name in "abc")).settings
    zygotes = Zygotes(loop, settings, "run")
    for name in "abc":
        zygotes.start(name)
    yield zygotes
    zygotes.close(0)


def answer_all(loop, process):
    """Let a zygote fork all that it was asked for, and these report."""
    for number in process.asked:
        loop.say(process, Branched(number, 100 + number))
        loop.say(process.made[-1], Loaded(REPORT))
    process.asked.clear()


def test_one_imports_and_the_others_are_forked_once_it_has(zygotes, made, loop):
    """While a fork is not answered, a sweep might take the new zygote for an orphan."""
    (first,) = made
    assert (first.asked, zygotes.is_branching()) == ([], False)
    loop.say(first, Loaded(REPORT))
    assert (len(first.asked), zygotes.is_branching()) == (2, True)
    answer_all(loop, first)
    assert [process.pool for process in made] == ["a", "b", "c"]
    assert (loop.up(), loop.seen) == (["a", "b", "c"], [])
    assert not zygotes.is_branching()


@pytest.mark.parametrize("how", ["refused", "late"])
def test_a_pool_whose_fork_does_not_come_imports_by_itself(zygotes, made, loop, how):
    """It says so; an answer that comes later changes nothing."""
    first = made[0]
    loop.say(first, Loaded(REPORT))
    numbers = list(first.asked)
    if how == "refused":
        for number in numbers:
            loop.say(first, Branched(number, 0, "no memory"))
    else:
        loop.time_s = BRANCH_S
        assert zygotes.next_s() <= loop.time_s
        zygotes.check(loop.time_s)
        for number in numbers:
            loop.say(first, Branched(number, 100))
    assert [event.pool for event in loop.seen] == ["b", "c"]
    assert [(each.pool, each.origin) for each in made[1:]] == [("b", None), ("c", None)]
    assert not zygotes.is_branching()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fails", "broken"),
        ("ends", "the zygote of pool a ended by itself"),
        ("hangs", "did not load within"),
    ],
)
def test_an_import_that_fails_fails_for_all_and_runs_once(
    zygotes, made, loop, how, reason
):
    """Nobody waits for it three times."""
    first = made[0]
    if how == "fails":
        loop.say(first, LoadFailed("broken", "trace"))
    elif how == "hangs":
        loop.time_s = 10_000.0
        zygotes.check(loop.time_s)
        assert first.killed
    loop.end(first)
    assert [lost.pool for lost in loop.losses()] == ["a", "b", "c"]
    assert all(reason in lost.message for lost in loop.losses())
    assert len(made) == 1


def test_if_the_one_that_imports_is_killed_the_next_one_imports(zygotes, made, loop):
    """The rest waits for that."""
    made[0].was_killed_by_others = True
    loop.end(made[0])
    assert [lost.pool for lost in loop.losses()] == ["a"]
    assert [process.pool for process in made] == ["a", "b"]
    loop.say(made[1], Loaded(REPORT))
    zygotes.start("a")
    answer_all(loop, made[1])
    assert sorted(loop.up()) == ["a", "b", "c"]


def test_a_fork_that_cannot_fork_is_replaced_by_an_import(zygotes, made, loop):
    """Its message is the reason, in the log and for `status`; nothing was lost."""
    first = made[0]
    loop.say(first, Loaded(REPORT))
    loop.say(first, Branched(first.asked[0], 100))
    loop.say(made[1], LoadFailed("threads run", ""))
    loop.end(made[1])
    assert [(event.pool, event.reason) for event in loop.seen] == [("b", "threads run")]
    assert ((made[2].pool, made[2].origin), loop.losses()) == (("b", None), [])
    loop.say(made[2], Loaded(REPORT))
    assert {event.pool: event.own_import for event in loop.loaded()} == {
        "a": "",
        "b": "threads run",
    }


def test_a_reload_shares_no_zygote_with_what_was_before(zygotes, made, loop):
    """Nor does a second one with the first, whose import still runs."""
    loop.say(made[0], Loaded(REPORT))
    answer_all(loop, made[0])
    for again in range(2):
        zygotes.settings = msgspec.structs.replace(zygotes.settings)
        for name in "abc":
            zygotes.start(name)
        assert [process.origin for process in made[3:]] == [None] * (again + 1)
    old, new = made[3:]
    assert old.closed
    loop.say(new, Loaded(REPORT))
    zygotes.take_over("a")
    answer_all(loop, new)
    assert loop.up()[3:] == ["a", "b", "c"]


def test_a_reloaded_zygote_that_is_dropped_leaves_nobody_waiting(zygotes, made, loop):
    """The next pool imports instead."""
    loop.say(made[0], Loaded(REPORT))
    answer_all(loop, made[0])
    zygotes.settings = msgspec.structs.replace(zygotes.settings)
    for name in "abc":
        zygotes.start(name)
    loop.say(made[3], Loaded(REPORT))
    zygotes.drop("a")
    assert [process.pool for process in made[4:]] == ["b"]
    loop.say(made[4], Loaded(REPORT))
    answer_all(loop, made[4])
    assert loop.up()[4:] == ["b", "c"]


def test_a_zygote_that_cannot_be_looked_at_is_looked_at_again(made, loop, monkeypatch):
    """Without a descriptor: not even a reserved one is free all the time."""

    def refused(_process):
        raise OSError(errno.EMFILE, "Too many open files")

    zygotes = Zygotes(loop, World(pool(name="a")).settings, "run")
    zygotes.start("a")
    monkeypatch.setattr(Process, "rss_bytes", refused)
    loop.time_s = zygotes.next_s()
    zygotes.check(loop.time_s)
    assert not made[0].killed
    monkeypatch.setattr(Process, "rss_bytes", lambda _process: 2**40)
    loop.time_s = zygotes.next_s()
    assert loop.time_s < NEVER_S
    zygotes.check(loop.time_s)
    assert made[0].killed
    zygotes.close(0)


def test_an_import_may_take_what_the_largest_waiting_pool_allows(made, loop):
    """A small pool that comes first does not forbid it to the others."""
    small, large = (
        msgspec.structs.replace(
            each, limits=msgspec.structs.replace(each.limits, memory_bytes=size)
        )
        for each, size in ((pool(name="a"), 2**28), (pool(name="b"), 2**30))
    )
    zygotes = Zygotes(loop, World(small, large).settings, "run")
    for name in "ab":
        zygotes.start(name)
    loop.time_s = zygotes.next_s()
    made[0].rss = 2**29
    zygotes.check(loop.time_s)
    assert not made[0].killed
    made[0].rss = 2**30 + 1
    loop.time_s = zygotes.next_s()
    zygotes.check(loop.time_s)
    assert made[0].killed
    zygotes.close(0)
