"""Forking a child of the supervisor's out of a zygote, which may have threads."""

import subprocess
import sys

import pytest

CHILDREN = 30
PATIENCE_S = 60
SCRIPT = """
import os, sys, threading
from jobpool.core.isolation import Enclosure
from jobpool.sandbox.forking import fork_child
from jobpool.sandbox.tree import become_subreaper

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
def test_hooks_at_a_fork_run_in_the_child(threads, copies):
    """Python's and the application's; with threads no process between waits for one."""
    script = subprocess.run(
        [sys.executable, "-c", SCRIPT, threads, str(CHILDREN)],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert script.stdout.split() == [str(copies)] * CHILDREN


TOLD = """
import os, sys
from jobpool.core.isolation import Enclosure
from jobpool.sandbox.forking import fork_child, watch_hooks
from jobpool.sandbox.tree import become_subreaper

become_subreaper()
watch_hooks()
import concurrent.futures.thread  # Python's own hooks are no reason
told = {"before": [], "after_in_parent": []}
if sys.argv[1] in told:
    hook = told[sys.argv[1]].append
    os.register_at_fork(**{sys.argv[1]: lambda: hook(os.getpid())})
forks = []
os.fork = lambda fork=os.fork: forks.append(os.getpid()) or fork()

def be_child(pipe):
    os._exit(0)

for _ in range(3):
    os.waitpid(fork_child(be_child, Enclosure.NONE), 0)
print(len(forks), *map(len, told.values()))
"""


@pytest.mark.parametrize(
    ("asked", "said"),
    [("before", "3 3 0"), ("after_in_parent", "3 0 3"), ("nothing", "0 0 0")],
)
def test_who_wants_to_be_told_of_forks_is_told_in_the_zygote(asked, said):
    """What it flushes or closes there is not done by each child anew."""
    script = subprocess.run(
        [sys.executable, "-c", TOLD, asked],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert script.stdout.strip() == said


SIGNALLED = """
import os, signal
from jobpool.core.isolation import Enclosure
from jobpool.sandbox.forking import fork_child
from jobpool.sandbox.tree import become_subreaper

become_subreaper()
reader, writer = os.pipe()
signal.signal(signal.SIGALRM, lambda *_: os.write(writer, b"%d\\n" % os.getpid()))

def be_child(pipe):
    os._exit(0)

signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
for _ in range(300):
    os.waitpid(fork_child(be_child, Enclosure.NONE), 0)
signal.setitimer(signal.ITIMER_REAL, 0)
os.close(writer)
print(*{int(pid) == os.getpid() for pid in os.read(reader, 65536).split()})
"""


def test_a_signal_is_handled_in_the_zygote_alone():
    """One that arrives during a fork is not handled once more by the copy."""
    script = subprocess.run(
        [sys.executable, "-c", SIGNALLED],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert script.stdout.split() == ["True"]
