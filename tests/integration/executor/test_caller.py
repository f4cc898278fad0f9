"""An executor leaves its caller's process as it is."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

import jobpool
from support.machine.executing import (
    GET_CHILD_SUBREAPER,
    PATIENCE_S,
    SET_CHILD_SUBREAPER,
    host_of,
    marked,
    script,
    wait_nobody,
)
from support.site.supervising import children_of


@pytest.fixture
def ordinary():
    """Be a process that adopts no orphans: other tests may have made this one so."""
    libc, was = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    libc.prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    yield
    libc.prctl(SET_CHILD_SUBREAPER, was.value, 0, 0, 0)


def state_of_this_process():
    """Return the state that an executor must not change here."""
    reaper = ctypes.c_int()
    ctypes.CDLL(None).prctl(GET_CHILD_SUBREAPER, ctypes.byref(reaper), 0, 0, 0)
    return {
        "handlers": {n: signal.getsignal(n) for n in signal.valid_signals()},
        "wakeup": signal.set_wakeup_fd(-1),
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "subreaper": reaper.value,
        "environ": dict(os.environ),
        "path": list(sys.path),
        "cwd": Path.cwd(),
        "children": children_of(os.getpid()),
        "session": os.getsid(0),
    }


@pytest.mark.usefixtures("ordinary")
def test_the_callers_process_is_left_as_it_is():
    """No handler, subreaper, variable, child or zombie, during and after use.

    What other tests have left may end meanwhile.
    """
    before = state_of_this_process()
    children = {*before.pop("children")}
    with jobpool.Executor(2) as executor:
        assert executor.submit(abs, -1).result(PATIENCE_S) == 1
        executor.submit(os._exit, 1).exception(PATIENCE_S)
        during = state_of_this_process()
    after = state_of_this_process()
    for state in (during, after):
        assert children.issuperset(state.pop("children"))
        assert state == before


def test_descriptors_and_threads_are_given_back():
    """After the shutdown there is none that was not there before.

    What other tests have left may end meanwhile.
    """

    def held():
        found = set(threading.enumerate())
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # that of this look
                found.add((path.name, path.readlink()))
        return found

    with jobpool.Executor(1) as executor:  # imports open nothing any more
        executor.submit(abs, -1).result(PATIENCE_S)
    before = held()
    with jobpool.Executor(1) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
    assert held() - before == set()


def test_a_subreaper_gets_no_zombie(marker):
    """Where the caller adopts orphans, the host becomes its child: it is reaped."""
    done = script(
        "import ctypes\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "with jobpool.Executor(1) as executor:\n"
        "    executor.submit(abs, -1).result()\n"
        "me = os.getpid()\n"
        "sys.stdout.write(open(f'/proc/{me}/task/{me}/children').read())\n"
    )
    assert done.stdout == ""
    wait_nobody(marker)


def test_nothing_is_started_before_the_first_call(marker):
    """An executor that is never used costs no process."""
    with jobpool.Executor(2):
        assert not marked(marker)


def test_the_import_of_jobpool_brings_no_supervisor():
    """Programs that only enqueue do not pay for the executor."""
    done = script("sys.stdout.write(repr('jobpool.supervisor' in sys.modules))")
    assert done.stdout == "False"


@pytest.mark.usefixtures("ordinary")
def test_the_host_is_not_a_child_of_the_caller(marker):
    """It has left the caller's process group and session."""
    with jobpool.Executor(1) as executor:
        executor.submit(abs, -1).result(PATIENCE_S)
        host = host_of(executor)
        assert host in marked(marker)
        assert host not in children_of(os.getpid())
        assert os.getsid(host) != os.getsid(0)
