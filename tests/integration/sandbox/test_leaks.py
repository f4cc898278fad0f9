"""Hidden changes by a handler do not reach the next job of its child."""

import json
import os
import re
import resource
import shutil

import pytest

from jobpool.core.config.settings import SandboxLevel
from jobpool.sandbox.confinement.data_limit import is_signed
from jobpool.sandbox.system.procfs import thread_count
from support.machine.sandbox_rig import Rig, lockdown_of, missing


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    rig = Rig(tmp_path_factory.mktemp("run"), "leaking")
    rig.loaded()
    yield rig
    rig.close()


@pytest.fixture
def child(rig):
    return rig.child(memory_backstop_bytes=2**30)


@pytest.mark.parametrize(
    "what",
    [
        "wakeup",
        "thread_trace",
        "thread_profile",
        "putenv",
        "putenv_over",
        "unsetenv",
        "clearenv",
        "logging",
        "decimal",
        "immutable",
        "append",
        "watched_files",
    ],
)
def test_reversible_changes_are_undone(rig, child, what):
    """The next job of the same child finds everything as it was, every time."""
    before = rig.result(child, "state")
    for _ in range(2):
        done = rig.run(child, "change", what)
        if not done.ok and what in ("immutable", "append"):
            pytest.skip(f"not to be had here: {done.error.message}")
        assert (done.ok, done.surprise) == (True, "")
        assert rig.result(child, "state") == before


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("timer", "it left timers running"),
        ("timer_by_pythonapi", "it left timers running"),
        ("timer_by_handle", "it left timers running"),
        ("filter", "or filters its system calls"),
        ("data", "it changed its limit of data"),
        ("data_hard", "it changed its limit of data"),
        ("files", "it changed its limits"),
        ("late_files", "it changed its limits"),
        ("chosen_signal", "it called fcntl.fcntl with F_SETSIG"),
        ("groups", "it changed its user or groups"),
        ("modules", "it took away modules"),
        ("one_module", "it took away modules"),
        ("audit_hook", "it called sys.addaudithook|PermissionError: no files"),
        ("network", "it left a namespace"),
        ("host_name", "it left a namespace"),
        ("python_unshare", "it called os.unshare"),
        ("hidden_thread", "it left threads running: hidden"),
        ("native_pause", "it left threads of native code running: 1"),
        ("native_sleep", "it left threads of native code running: 1"),
    ],
)
def test_irreversible_changes_are_named(rig, child, what, named):
    """Then the child is replaced; the job's own outcome stays."""
    if what == "python_unshare" and not hasattr(os, "unshare"):
        pytest.skip("os.unshare came with Python 3.12")
    done = rig.run(child, "change_for_good", what)
    assert done.ok
    if (why := json.loads(done.result)) != "done":
        pytest.skip(f"not to be had here: {why}")
    assert re.search(named, done.surprise)


@pytest.mark.parametrize("what", ["native_pool", "native_brief"])
def test_an_idle_library_thread_pool_and_ending_threads_are_no_leak(rig, child, what):
    """It only works when it is given work."""
    for _ in range(2):
        assert rig.run(child, "change_for_good", what).surprise == ""
    threads = thread_count(child.job_pid)
    assert threads == (5 if what == "native_pool" else 1)
    assert rig.run(child, "change_for_good", "native_pause").surprise != ""


@pytest.mark.parametrize("level", [SandboxLevel.OFF, SandboxLevel.STRICT])
def test_native_code_of_a_child_without_rights_is_checked_as_well(rig, level):
    """Privileged settings are checked once native code has been loaded."""
    if level is SandboxLevel.STRICT and (why := missing()):
        pytest.skip(f"not to be had here: {why}")
    child = rig.child(lockdown=lockdown_of(sandbox=level))
    done = rig.run(child, "change_for_good", "undumpable")
    assert done.surprise == "it changed how it is scheduled"


def test_lost_privileges_are_named(rig):
    """If children keep the right to gain privileges."""
    child = rig.child(lockdown=lockdown_of(sandbox=SandboxLevel.OFF))
    done = rig.run(child, "change_for_good", "privileges")
    assert "it changed its rights" in done.surprise


def test_changes_made_by_a_started_program_are_named(rig):
    """If nothing forbids it: children are checked after programs ran, too."""
    if shutil.which("prlimit") is None:
        pytest.skip("there is no such program here")
    child = rig.child(lockdown=lockdown_of(sandbox=SandboxLevel.OFF))
    assert rig.run(child, "state").surprise == ""
    done = rig.run(child, "change_for_good", "files_by_a_program")
    assert done.surprise == "it changed its limits"


def test_a_bound_that_the_supervisor_moves_is_no_leak(rig, child):
    """The supervisor moves it while an attempt runs.

    What a handler sets after that is one.
    """
    child.bound_memory(2**29)
    soft, _hard = resource.prlimit(child.pid, resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        pytest.skip("the supervisor may not bound another user's process here")
    assert is_signed(soft)
    assert rig.run(child, "state").surprise == ""
    child.bound_memory(2**28)
    assert resource.prlimit(child.pid, resource.RLIMIT_DATA)[0] != soft
    assert rig.run(child, "state").surprise == ""
    assert rig.run(child, "change_for_good", "data").surprise


def test_expensive_checks_are_for_native_code(rig, child):
    """They are made only once native code is loaded, whatever loaded it."""
    assert rig.result(child, "is_watched") is False
    rig.run(child, "change", "clearenv")  # opens a library
    assert rig.result(child, "is_watched") is True
