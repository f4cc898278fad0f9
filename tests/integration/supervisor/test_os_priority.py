"""Loop and store thread have priority, and so has a child about to be killed."""

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest

from jobpool.sandbox.handles.child import DYING_NICE, ChildProcess
from jobpool.supervisor.os_priority import FIRST_NICE, going_first
from support.machine.sandbox_rig import PATIENCE_S, Rig
from support.site.supervising import Site
from support.waiting import wait_until

APP = """
@jobs.job("cpu", kind="work")
def work():
    pass
"""


def niceness(pid=0):
    return os.getpriority(os.PRIO_PROCESS, pid)


def niceness_of_a_fork():
    """Return the niceness of a process that is started now."""
    pid = os.fork()
    if pid == 0:
        os._exit(niceness() + 20)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) - 20


def niceness_of_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(niceness()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def allowed():
    """Skip where the kernel allows no priority, or we run with low priority."""
    with going_first() as is_first:
        if not is_first:
            pytest.skip("not allowed here: no CAP_SYS_NICE, or started with nice")


def test_only_this_thread_has_priority_and_only_for_a_while(allowed):
    """What it starts begins at niceness 0, or every handler would precede the store."""
    with going_first() as is_first:
        assert is_first
        assert niceness() == FIRST_NICE
        assert niceness_of_a_thread() == 0
        assert niceness_of_a_fork() == 0
    assert niceness() == 0
    assert niceness_of_a_fork() == 0


def test_loop_and_store_thread_have_priority_and_no_child_does(allowed, tmp_path):
    """Otherwise the loop would wait for a thread that holds the interpreter's lock."""
    with Site(tmp_path, APP) as site:
        supervisor = site.start("cpu=1")
        site.finish(site.add("work"))
        child, *_ = site.children()
        threads = []
        for one in Path(f"/proc/{supervisor.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # some live only for a moment
                threads.append(niceness(int(one.name)))
        assert threads.count(FIRST_NICE) == 2 < len(threads)
        zygote, *_ = site.zygotes(supervisor)
        assert [niceness(zygote), niceness(child)] == [0, 0]
        supervisor.stop()


def test_an_inherited_niceness_is_kept():
    """Starting a supervisor with nice applies to all of it."""
    pid = os.fork()
    if pid == 0:
        kept = os.nice(5)
        with going_first() as is_first:
            good = not is_first and niceness() == niceness_of_a_fork() == kept
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_inherited_scheduling_policy_is_kept():
    """Starting a supervisor with an idle policy applies to all of it."""
    pid = os.fork()
    if pid == 0:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with going_first() as is_first:
            good = not is_first and os.sched_getscheduler(0) == os.SCHED_IDLE
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_about_to_be_killed_has_priority(allowed, tmp_path):
    """It needs a core to write its stacks and to release its memory."""
    rig = Rig(tmp_path)
    rig.loaded()
    try:
        child = rig.child()
        rig.start(child, "spin", soft_timeout_s=None)
        assert niceness(child.pid) == 0
        wait_until(
            lambda: child.dump_stack(dying=True) or "in spin" in child.stack_text(),
            PATIENCE_S,
            "the stack",
        )
        assert niceness(child.pid) == DYING_NICE
        child.kill_tree()
        assert rig.exit(child).signal == signal.SIGKILL
    finally:
        rig.close()


def test_raising_the_priority_of_a_missing_child_changes_nothing(tmp_path):
    """Pid 0 would mean this process."""
    child = ChildProcess(0, "cpu/0", str(tmp_path / "mark"))
    before = niceness()
    child.dump_stack(dying=True)
    child.kill_tree()
    child.close()
    assert niceness() == before
