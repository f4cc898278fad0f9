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
