"""Forking a supervisor's child out of a zygote that may have threads."""

import os
import subprocess
import sys

import pytest

CHILDREN = 30
PATIENCE_S = 60
SCRIPT = """
import os, sys, threading
from jobpool.core.isolation.measures import Enclosure
from jobpool.sandbox.zygote.forking import fork_child
from jobpool.sandbox.system.process_tree import become_subreaper

become_subreaper()
copies = []
os.register_at_fork(after_in_child=lambda: copies.append(os.getpid()))

def spin():
    while True:
        pass

def be_child(pipe):
    os._exit(len(copies))

if sys.argv[1] == "threads":
    threading.Thread(target=spin, daemon=True).start()
for _ in range(int(sys.argv[2])):
    _pid, status = os.waitpid(fork_child(be_child, Enclosure.NONE), 0)
    print(os.waitstatus_to_exitcode(status))
sys.stdout.flush()
os._exit(0)  # the thread never ends
"""


@pytest.mark.parametrize(
    ("threads", "copies"),
    [
        pytest.param("no threads", 1, id="one thread: the child's hooks alone"),
        pytest.param("threads", 2, id="a thread beside: the middle process's as well"),
    ],
)
def test_at_fork_hooks_run_in_the_child(threads, copies):
    """Python's and the application's.

    With threads, no process in between waits for one.
    """
    script = subprocess.run(
        [sys.executable, "-c", SCRIPT, threads, str(CHILDREN)],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert script.stdout.split() == [str(copies)] * CHILDREN


TOLD = """
import os, sys, threading
from jobpool.core.isolation.measures import Enclosure
from jobpool.sandbox.zygote.forking import fork_child, watch_hooks
from jobpool.sandbox.system.process_tree import become_subreaper

become_subreaper()
watch_hooks()
import concurrent.futures.thread  # has a lock, as many have
lock = threading.Lock()
told = []

def before():
    lock.acquire()
    told.append("before")

def after_in_parent():
    lock.release()
    told.append("after")

def after_in_child():
    lock.release()
    threading.Thread(target=lambda: None).start()

def failing():
    raise ValueError("a hook")

os.register_at_fork(before=failing, after_in_child=after_in_child)
os.register_at_fork(before=before, after_in_parent=after_in_parent)

def be_child(pipe):
    os._exit(told.count("before"))

_pid, status = os.waitpid(fork_child(be_child, Enclosure[sys.argv[1]]), 0)
print(*told)
if sys.argv[1] == "NONE":  # else it is the init's
    print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("enclosure", ["NONE", "OWN_USER"])
def test_before_fork_hooks_run_in_the_zygote(enclosure):
    """What a hook flushes or closes there is not done by each child again.

    Locks are released, and intermediate processes are not involved: one that makes
    namespaces must have no thread.
    """
    if enclosure != "NONE" and os.geteuid() != 0:
        pytest.skip("only root makes namespaces without one for users")
    script = subprocess.run(
        [sys.executable, "-c", TOLD, enclosure],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    # The child's own parent forks it as Python does, with a copy of all this.
    copied = ["2"] if enclosure == "NONE" else []
    assert script.stdout.split() == ["before", "after", *copied]
    assert "ValueError: a hook" in script.stderr


SIGNALLED = """
import os, signal
from jobpool.core.isolation.measures import Enclosure
from jobpool.sandbox.zygote.forking import fork_child
from jobpool.sandbox.system.process_tree import become_subreaper

become_subreaper()
reader, writer = os.pipe()
noted = set()

def note(*_):
    if (pid := os.getpid()) not in noted:  # once: nobody reads before the end
        noted.add(pid)
        os.write(writer, b"%d\\n" % pid)

signal.signal(signal.SIGALRM, note)

def be_child(pipe):
    os._exit(0)

signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
for _ in range(300):
    os.waitpid(fork_child(be_child, Enclosure.NONE), 0)
signal.setitimer(signal.ITIMER_REAL, 0)
os.close(writer)
print(*{int(pid) == os.getpid() for pid in os.read(reader, 65536).split()})
"""


def test_a_signal_is_handled_only_in_the_zygote():
    """A signal that arrives during a fork is not handled again by the copy."""
    script = subprocess.run(
        [sys.executable, "-c", SIGNALLED],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert script.stdout.split() == ["True"]
