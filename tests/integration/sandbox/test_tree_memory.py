"""The memory of real process trees, and the cost of measuring it."""

import subprocess
import sys
import time

import pytest

from jobpool.sandbox.metering import confirmation as confirming_module
from jobpool.sandbox.metering import tree_memory
from jobpool.sandbox.metering.confirmation import Confirmation
from jobpool.sandbox.metering.tree_memory import TreeMemory
from jobpool.sandbox.system import procfs
from support.machine.sandbox_rig import PATIENCE_S, Rig
from support.waiting import wait_until

MIB = 2**20
ROOT = """
import os, sys, threading, time

held, below, pids = [], [], []


def live(orders):
    for line in orders:
        exec(line)
        print("done", flush=True)


def fork():
    from_root, to_child = os.pipe()
    pid = os.fork()
    if pid:
        os.close(from_root)
        pids.append(pid)
        below.append(os.fdopen(to_child, "w", buffering=1))
        return
    for file in below:
        file.close()
    os.close(to_child)
    for line in os.fdopen(from_root):
        exec(line)
    os._exit(0)


def threads(count):
    threading.stack_size(65536)
    stop = threading.Event()
    for _ in range(count):
        threading.Thread(target=stop.wait, daemon=True).start()


live(sys.stdin)
"""


def too_dear(_pid):
    """Stand in for what must not be called."""
    pytest.fail("it is too dear")


class Tree:
    """A process that does what it is told, and its descendants."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.pid = self.process.pid
        self.memory = TreeMemory(self.pid)
        self.confirming = Confirmation(self.memory)

    def do(self, line):
        """Let the root run a line of Python."""
        self.process.stdin.write(line + "\n")
        assert self.process.stdout.readline() == "done\n"

    def child(self, number):
        """Return the pid of a child of the root; the largest need not be the newest."""
        self.process.stdin.write(f"print(pids[{number}])\n")
        pid = int(self.process.stdout.readline())
        assert self.process.stdout.readline() == "done\n"
        return pid

    def grow(self, number, mebibytes):
        """Let a child of the root allocate so much more memory, and wait for it."""
        pid = self.child(number)
        before = procfs.resident_bytes(pid)
        self.do(
            f"below[{number}].write('held.append(b\"x\" * ({mebibytes} << 20))\\n')"
        )
        wait_until(
            lambda: procfs.resident_bytes(pid) >= before + mebibytes * MIB,
            PATIENCE_S,
            "it has grown",
        )

    def measure(self, limit_mebibytes):
        """Return the measured memory in MiB."""
        return self.confirming.measure(limit_mebibytes * MIB, time.monotonic()) / MIB

    def wait_over(self, limit_mebibytes):
        """Wait until a measurement says so; after a slow one the next is put off."""
        wait_until(
            lambda: self.measure(limit_mebibytes) > limit_mebibytes,
            PATIENCE_S,
            "it is over its limit",
        )


@pytest.fixture
def tree():
    made = Tree()
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.fixture
def no_shares(monkeypatch):
    """Proportional shares cannot be read."""

    def refuse(*_args):
        pytest.fail("shares were read")

    monkeypatch.setattr(confirming_module, "_shares", refuse)


@pytest.fixture
def no_walks(monkeypatch):
    """Full walks of the process tree are made to fail."""

    def forbid():
        monkeypatch.setattr(
            tree_memory, "descendants_of", lambda _pid: pytest.fail("too dear")
        )

    return forbid


def test_new_processes_are_found_between_two_walks(tree, no_walks):
    """And the children of new processes; ended ones are forgotten."""
    tree.do("fork()")
    assert len(tree.memory.walk()) == 1
    no_walks()
    tree.memory._walk.is_due = lambda *_args, **_kwargs: False
    tree.memory.sample(time.monotonic())
    tree.do("fork()")
    tree.do("below[0].write('fork()\\n')")
    wait_until(
        lambda: tree.memory.sample(time.monotonic()) and len(tree.memory.below) == 3,
        PATIENCE_S,
        "two more",
    )
    tree.do("below.pop().close(); os.wait()")
    tree.memory._search.forget()
    tree.memory.sample(time.monotonic())
    assert set(tree.memory.below) == set(procfs.descendants_of(tree.pid))


def test_many_threads_do_not_make_it_expensive_to_find_children(tree, monkeypatch):
    """If it has more threads than there are processes, they are not read one by one."""
    monkeypatch.setattr(procfs, "_THREADS_MANY", 10)
    tree.do("fork()")
    monkeypatch.setattr(procfs, "process_numbers", lambda: {1, *expected, tree.pid})
    expected = procfs.listed_children_of(tree.pid)
    tree.do("threads(50)")
    monkeypatch.setattr(
        procfs, "listed_children_of", lambda _pid: pytest.fail("too dear")
    )
    assert procfs.children_of(tree.pid) == expected
    assert len(expected) == 1


def test_shared_memory_is_no_reason_to_kill(tree):
    """Ten processes that share the same memory are charged for it once."""
    tree.do("held.append(b'x' * (60 << 20))")
    for _ in range(10):
        tree.do("fork()")
    assert tree.memory.sample(0.0) > 600 * MIB
    for _ in range(3):
        assert tree.measure(110) < 110
    tree.grow(3, 60)
    tree.wait_over(110)


@pytest.mark.usefixtures("no_shares")
def test_growth_counts_without_reading_shared_memory(tree):
    """What a process has gained since it was first seen is not shared."""
    tree.do("held.append(b'x' * (60 << 20))")
    tree.do("fork()")
    tree.do("fork()")
    tree.memory.walk()
    assert tree.measure(10_000) > 150
    tree.grow(0, 40)
    tree.grow(1, 40)
    tree.wait_over(130)


def test_growth_is_never_counted_twice(tree):
    """The lower bound stays below the truth, whichever process forks from which."""
    tree.do("fork()")
    tree.memory.walk()
    tree.measure(10_000)
    tree.grow(0, 50)
    tree.do("below[0].write('fork()\\n')")
    wait_until(lambda: len(tree.memory.walk()) == 2, PATIENCE_S, "a grandchild")
    claims = tree.confirming._claims()
    assert len(claims) == 3
    own = claims[tree.pid].anon_bytes / MIB
    assert 49 < tree.confirming._least(claims) / MIB - own < 60


def test_processes_outside_the_tree_are_not_counted(tree):
    """A process that has left the tree is not measured with it."""
    stranger = Tree()
    try:
        stranger.do("held.append(b'x' * (60 << 20))")
        tree.memory.below.append(stranger.pid)
        assert tree.measure(50) < 50
    finally:
        stranger.process.kill()
        stranger.process.communicate()


def test_a_slow_round_is_abandoned_once(tree, monkeypatch):
    """One slow round must not block the supervisor.

    The next round, after a pause, is complete.
    """
    tree.do("held.append(b'x' * (60 << 20))")
    for _ in range(4):
        tree.do("fork()")
    tree.memory.walk()
    now_s = 1000.0

    def slow(path):
        nonlocal now_s
        if path.endswith("smaps_rollup"):
            now_s += 0.1
        return procfs.read(path)

    monkeypatch.setattr(confirming_module, "read", slow)
    monkeypatch.setattr(confirming_module, "monotonic", lambda: now_s)
    tree.confirming._light._clock = lambda: now_s
    before_s = now_s
    assert tree.confirming.measure(70 * MIB, now_s) <= 70 * MIB
    assert now_s - before_s == pytest.approx(0.1)
    assert tree.confirming.measure(70 * MIB, now_s) == 0
    now_s = before_s = now_s + 10.0
    tree.confirming.measure(200 * MIB, now_s)
    assert now_s - before_s == pytest.approx(0.5)


def test_children_of_the_sandbox_are_measured_as_trees(tmp_path):
    """Of one process and of two; 0 when all are gone."""
    rig = Rig(tmp_path, "hostile")
    rig.loaded()
    try:
        for how, least in (("hold", 0), ("hold_in_two", 64)):
            child = rig.child()
            memory = TreeMemory(child.job_pid)
            confirming = Confirmation(memory)
            rig.start(child, how, 64)
            wait_until(
                lambda m=memory, c=confirming: (
                    bool(m.walk()) == (how == "hold_in_two")  # noqa: B023
                    and c.measure(2**40, time.monotonic()) > 64 * MIB
                ),
                PATIENCE_S,
                "it holds 64 MiB",
            )
            assert memory.known_rss_bytes() >= least * MIB
            assert confirming.measure(110 * MIB, time.monotonic()) < 110 * MIB
            child.kill_tree()
            rig.exit(child)
            assert confirming.measure(1, time.monotonic()) == 0
    finally:
        rig.close()


def test_one_that_sleeps_alone_uses_no_processor_time_and_any_growth_does(tree):
    """In each of its threads: by this the watch knows whom it may spare a sample."""
    tree.do("pass")  # while an interpreter starts it may sleep as well
    tree.memory.sample(time.monotonic())
    assert tree.memory.is_alone
    blocked = tree.process.pid
    wait_until(
        lambda: procfs.process_stat(blocked).state == "S", PATIENCE_S, "it sleeps"
    )
    asleep_s = procfs.cpu_s(blocked)
    assert asleep_s == procfs.cpu_s(blocked) > 0.0
    tree.do("held.append(b'x' * (1 << 20))")
    grown_s = procfs.cpu_s(blocked)
    assert grown_s > asleep_s
    tree.do("t = threading.Thread(target=lambda: held.append(b'x' * (1 << 20)))")
    tree.do("t.start(); t.join()")
    assert procfs.cpu_s(blocked) > grown_s
    tree.do("fork()")
    tree.memory.sample(time.monotonic())
    assert not tree.memory.is_alone
