"""How many processes and threads a tree has, and when they are counted."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from jobpool.sandbox.metering import tree_size as tree_size_module
from jobpool.sandbox.metering.tree_size import TreeSize, tree_size
from support.waiting import wait_until

PATIENCE_S = 30.0


class Slow:
    """A slow count, which is not due again soon."""

    def is_due(self, now_s, *, near):
        assert near
        return now_s < 0.02

    def begin(self):
        pass

    def end(self, now_s):
        pass


@pytest.fixture
def counts(monkeypatch):
    """The counts, in order."""
    sizes = []
    monkeypatch.setattr(
        tree_size_module, "tree_size", lambda _root, _enough: sizes.pop(0)
    )
    return sizes


BREED = """
import os, signal, threading
for end in (True, True, False):
    if os.fork() == 0:
        if not end:
            signal.pause()
        os._exit(0)
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
os.write(1, b"x")
signal.pause()
"""
"""Two zombies, a process and three more threads, of an interpreter of its own: what
others have imported here may start a thread in each process that is forked."""


def test_processes_threads_and_zombies_count():
    """Everything that uses up process ids of the host."""
    command = [sys.executable, "-I", "-S", "-c", BREED]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as root:
        try:
            assert root.stdout.read(1) == b"x"
            assert tree_size(root.pid, 100) == 1 + 3 + 3
            assert 2 <= tree_size(root.pid, 2) <= 7
        finally:
            for pid in [*tree_size_module.children_of(root.pid), root.pid]:
                os.kill(pid, signal.SIGKILL)
    assert tree_size(root.pid, 100) == 0


def test_the_hosts_count_includes_threads():
    """Whichever process starts them."""

    def grows():
        before = tree_size_module.host_tasks()
        end = threading.Event()
        started = [threading.Thread(target=end.wait, daemon=True) for _ in range(200)]
        for thread in started:
            thread.start()
        after = tree_size_module.host_tasks()
        end.set()
        for thread in started:
            thread.join()
        return after > before + 100

    # Of others, a thousand may end just meanwhile.
    wait_until(grows, PATIENCE_S, "it has grown by about 200")


def test_a_tree_is_counted_once_the_host_has_grown_by_a_step(counts):
    """Also for slow growth, measured from the host's lowest number."""
    size = TreeSize(os.getpid())
    counts += [1, 300, 310, 2]
    for host in (1000, 500, 755):
        assert size.sample(0.0, 4096, host) == 1
        assert not size.grows
    assert size.sample(0.3, 4096, 756) == 300
    assert size.grows
    assert size.sample(0.35, 4096, 756) == 310  # a tree that grew is counted once more
    assert not size.grows
    assert size.sample(0.4, 4096, 1000) == 310
    size.begin()
    assert size.sample(0.5, 4096, 1000) == 2  # as at each beginning


def test_a_slow_count_is_repeated_only_while_the_host_grows(counts):
    """And not otherwise: the host's number may change for other reasons."""
    size = TreeSize(os.getpid())
    size._count = Slow()
    counts += [1, 1000, 2000, 3000, 3000]
    size.sample(0.0, 4096, 1000)
    for step in range(1, 5):
        size.sample(step * 0.01, 4096, 1000 + 500 * step)
    assert counts == []
    assert size.sample(0.05, 4096, 3500) == 3000  # not counted
