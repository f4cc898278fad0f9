"""How children, zygotes and supervisors die, and that nothing is left of them."""

import contextlib
import gc
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from jobpool.sandbox.handles.zygote import IN_FLIGHT_MAX
from jobpool.sandbox.protocol.messages import FrameError
from jobpool.sandbox.system.process_tree import sweep_orphans
from jobpool.sandbox.system.procfs import descendants_of, process_stat, read
from support.machine.sandbox_rig import PATIENCE_S, Rig
from support.waiting import wait_until


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    rig.loaded()
    yield rig
    rig.close()


def is_running(pid):
    """Say whether a pid is a process that is not a zombie."""
    stat = process_stat(pid)
    return stat is not None and stat.state not in "ZX"


def wait_for_descendants(child, count):
    """Wait until a child has so many descendants, and return them."""
    return wait_until(
        lambda: found if len(found := descendants_of(child.job_pid)) >= count else None,
        PATIENCE_S,
        f"{count} descendants",
    )


@pytest.mark.parametrize(
    ("kind", "argument", "exit_code", "signum"),
    [
        ("exit_now", 0, 0, None),
        ("exit_now", 7, 7, None),
        ("kill_self", signal.SIGKILL, None, signal.SIGKILL),
        ("kill_self", signal.SIGABRT, None, signal.SIGABRT),
        ("null_dereference", None, None, signal.SIGSEGV),
    ],
)
def test_the_exit_status_is_exact(rig, kind, argument, exit_code, signum):
    """The supervisor sees the exact exit code or signal, and no result."""
    child = rig.child()
    rig.start(child, kind, argument)
    ended = rig.exit(child)
    assert (ended.exit_code, ended.signal) == (exit_code, signum)
    assert ended.max_rss_bytes > 0
    assert rig.message(child) is None


def test_stacks_after_a_fatal_signal_are_kept(rig):
    """After a segfault the Python stack can be read, though the process is gone."""
    child = rig.child()
    rig.start(child, "null_dereference")
    rig.exit(child)
    assert "Segmentation fault" in child.stack_text()
    assert "in null_dereference" in child.stack_text()


@pytest.mark.parametrize("before", [None, "take_usr2"])
def test_the_stack_of_a_stuck_c_call_can_be_read(rig, before):
    """A handler stuck in C that holds the interpreter still gives its stack.

    Even if the previous attempt in its child installed a signal handler of its own.
    """
    child = rig.child()
    if before:
        assert rig.run(child, before).ok
    rig.start(child, "hold_interpreter")
    wait_until(
        lambda: (
            child.dump_stack(dying=True) or "in hold_interpreter" in child.stack_text()
        ),
        PATIENCE_S,
        "its stack",
    )
    child.kill_tree()
    assert rig.exit(child).signal == signal.SIGKILL


def test_a_zygote_outlives_the_end_of_what_it_was_just_to_guard(rig):
    """A reload lets children end at once that the new zygote is to guard."""
    with subprocess.Popen(["true"]) as ended:
        start_time = process_stat(ended.pid).start_time
    rig.zygote.guard([(ended.pid, start_time)])
    assert rig.run(rig.child(), "take_usr2").ok


def test_the_last_output_of_a_killed_child_is_kept(rig):
    """Output printed right before a death can be read afterwards."""
    child = rig.child()
    rig.start(child, "say_and_die", "last words")
    rig.exit(child)
    assert child.output_tail(1000) == b"last words\n"


@pytest.mark.parametrize(
    ("kind", "count"), [("spawn_tree_and_wait", 3), ("spawn_stopped", 1)]
)
def test_kill_takes_the_whole_tree(rig, tmp_path, kind, count):
    """No process of a tree survives: not setsid, a double fork or a stopped one."""
    child = rig.child()
    notes = tmp_path / "pids"
    rig.start(child, kind, str(notes))
    below = wait_for_descendants(child, count)
    if kind == "spawn_tree_and_wait":
        wait_until(
            lambda: notes.exists() and len(notes.read_text().split()) >= 3,
            PATIENCE_S,
            "all have started",
        )
        noted = set(map(int, notes.read_text().split()))
        # A walk may miss one whose parent is just ending.
        wait_until(
            lambda: noted <= set(descendants_of(child.job_pid)),
            PATIENCE_S,
            "all are below it",
        )
        below = descendants_of(child.job_pid)
    assert count <= child.kill_tree() <= len(below)  # zombies are dead already
    assert rig.exit(child).signal == signal.SIGKILL
    wait_until(lambda: not any(map(is_running, below)), PATIENCE_S, "all are gone")


def marked_with(run_id):
    """Return the processes that carry a run's marker."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(PermissionError):
            if f"JOBPOOL_RUN={run_id}".encode() in read(str(place / "environ")):
                found.append(int(place.name))
    return found


def test_a_process_that_runs_away_is_caught(rig):
    """A process that forks and exits forever, in new sessions, is ended."""
    for _ in range(10):
        child = rig.child()
        rig.start(child, "hop")
        wait_for_descendants(child, 1)
        child.kill_tree()
        rig.exit(child)
        wait_until(
            lambda: not sweep_orphans({rig.zygote.pid}, rig.zygote.start_time),
            PATIENCE_S,
            "swept",
        )
        assert marked_with(rig.run_id) == [rig.zygote.pid]


def test_orphans_of_a_crashed_child_are_swept(rig, tmp_path):
    """When a child dies, its descendants are adopted by the supervisor and ended."""
    child, other = rig.child(), rig.child()
    notes = tmp_path / "pids"
    rig.start(child, "spawn_tree_and_crash", str(notes))
    assert rig.exit(child).signal == signal.SIGSEGV
    left = list(map(int, notes.read_text().split()))
    assert any(map(is_running, left))
    known = {other.pid, rig.zygote.pid}
    wait_until(
        lambda: not sweep_orphans(known, rig.zygote.start_time), PATIENCE_S, "swept"
    )
    assert not any(map(is_running, left))
    assert rig.result(other, "echo", 1) == 1


def test_a_sweep_spares_processes_older_than_the_zygotes(tmp_path):
    """A sweep ends unknown children, but none that the program had before."""
    before = subprocess.Popen(["sleep", "1000"])
    try:
        rig = Rig(tmp_path)
        rig.loaded()
        stranger = subprocess.Popen(["sleep", "1000"])
        rig.close()
        assert is_running(before.pid)
        assert not is_running(stranger.pid)
        stranger.wait()
    finally:
        before.kill()
        before.wait()


def test_a_rig_leaves_the_tests_own_resource_tracker_alone(tmp_path):
    """It is asked for in a test and used by later ones: it warns if it was killed."""
    context = multiprocessing.get_context("spawn")
    resource_tracker._resource_tracker._stop()
    rig = Rig(tmp_path)
    rig.loaded()
    context.Lock()
    rig.close()
    context.Lock()


def test_a_zygotes_death_leaves_its_children_alone(rig):
    """A running child works on, and its exit status is exact."""
    child = rig.child()
    rig.start(child, "sleep", 0.3)
    rig.zygote.kill()
    wait_until(
        lambda: rig.zygote.exit_status() == -signal.SIGKILL, PATIENCE_S, "its end"
    )
    assert rig.from_zygote() == [None]
    assert json.loads(rig.message(child).result) == "slept"
    rig.start(child, "exit_now", 9)
    assert rig.exit(child).exit_code == 9


def test_a_zygote_that_sends_garbage_is_killed(rig):
    """A zygote that sends garbage is killed and counts as gone."""
    rig.zygote._decoder._buffer += b"\xff\xff\xff\x7f"
    rig.zygote.fork(0, [0] * 5)
    assert rig.from_zygote() == [None]
    wait_until(
        lambda: rig.zygote.exit_status() == -signal.SIGKILL, PATIENCE_S, "its end"
    )


def test_garbage_from_a_child_raises_frame_error(rig):
    """Bytes that are not a frame raise FrameError; nothing is decoded."""
    child = rig.child()
    rig.start(child, "write_garbage")
    with pytest.raises(FrameError):
        rig.message(child)


def test_a_request_with_too_few_descriptors_makes_no_child(rig):
    """A request without its descriptors is answered with ForkFailed."""
    rig.zygote.fork(3, [0])
    answer = rig.from_zygote()[0]
    assert (type(answer).__name__, answer.slot) == ("ForkFailed", 3)
    assert rig.result(rig.child(), "echo", 1) == 1


def test_a_zygote_without_free_descriptors_makes_no_child(rig):
    """A zygote without free descriptors reports it, and recovers."""
    rig.child()
    before = resource.prlimit(rig.zygote.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(rig.zygote.pid, resource.RLIMIT_NOFILE, (8, before[1]))
    rig.zygote.fork(5, [0] * 5)
    answer = rig.from_zygote()[0]
    assert (type(answer).__name__, answer.slot) == ("ForkFailed", 5)
    resource.prlimit(rig.zygote.pid, resource.RLIMIT_NOFILE, before)
    assert rig.result(rig.child(), "echo", 1) == 1


def test_many_requests_at_once_are_all_answered(rig):
    """Requests beyond the socket's capacity wait, and each gets its answer."""
    for slot in range(60):
        rig.zygote.fork(slot, [0])
    answers = []
    while len(answers) < 60:
        answers += rig.from_zygote()
    assert [answer.slot for answer in answers] == list(range(60))


def test_a_request_that_cannot_be_kept_leaves_no_descriptor(rig):
    """If there is no room for a request's descriptors, those received are closed."""
    for slot in range(IN_FLIGHT_MAX):
        rig.zygote.fork(slot, [0])
    gc.collect()  # what others have left must not be closed meanwhile
    before = sorted(Path("/proc/self/fd").iterdir())
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(path.name) for path in before}
    free = [number for number in range(len(taken) + 3) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[2], limit[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            rig.zygote.fork(99, [0] * 5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


SUPERVISOR = """
import os, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from support.machine.sandbox_rig import Rig
if __name__ == "__main__":
    rig = Rig({directory!r})
    rig.loaded()
    idle, busy, deep = rig.child(), rig.child(), rig.child()
    rig.start(busy, "hold_interpreter")
    rig.start(deep, "spawn_tree_and_wait", {notes!r})
    pids = [rig.zygote.pid, idle.pid, busy.pid, deep.pid]
    Path({ready!r}).write_text(" ".join(map(str, [os.getpid(), *pids])))
    time.sleep(1000)
"""


def test_a_supervisors_death_leaves_nothing(tmp_path):
    """Kill -9 of the supervisor: its zygote ends every tree, and itself."""
    ready, notes = tmp_path / "ready", tmp_path / "notes"
    script = tmp_path / "supervisor.py"
    script.write_text(
        SUPERVISOR.format(
            tests=str(Path(__file__).parents[2]),
            directory=str(tmp_path),
            notes=str(notes),
            ready=str(ready),
        )
    )
    supervisor = subprocess.Popen([sys.executable, str(script)])
    try:
        wait_until(
            lambda: (
                ready.exists()
                and ready.read_text()
                and notes.exists()
                and len(notes.read_text().split()) >= 3
            ),
            PATIENCE_S,
            "everything runs",
        )
        pids = [int(p) for p in (ready.read_text() + " " + notes.read_text()).split()]
        assert all(map(is_running, pids[1:]))
    finally:
        supervisor.kill()
        supervisor.wait()
    wait_until(lambda: not any(map(is_running, pids)), PATIENCE_S, "nothing is left")


def test_closing_a_zygote_ends_its_children(rig):
    """Closing a zygote is like its supervisor's death: all trees end."""
    child = rig.child()
    rig.start(child, "hold_interpreter")
    rig.zygote.close()
    assert rig.exit(child).signal == signal.SIGKILL


def test_the_backstop_makes_huge_allocations_fail_at_once(rig):
    """Far beyond the limit an allocation raises MemoryError inside the handler."""
    child = rig.child(memory_backstop_bytes=32 * 2**20)
    assert rig.result(child, "allocate", 64) == 64 * 2**20
    done = rig.run(child, "allocate", 512, memory_bytes=32 * 2**20)
    assert done.error.classes[0] == "MemoryError"
    assert done.error.out_of_memory.startswith("asked for more than ")
    assert done.surprise == "it ran out of memory"


def test_a_child_that_is_never_told_to_go_ends(rig):
    """A child whose supervisor ends before `Go` exits with status 0."""
    child = rig.child(started=False)
    assert is_running(child.pid)
    child._socket.close()
    assert rig.exit(child).exit_code == 0


def test_kill_is_quick_whatever_the_handler_does(rig):
    """A GIL holder, a busy loop and a stopped child die at the first kill."""
    for kind in ("hold_interpreter", "spin", "sleep"):
        child = rig.child()
        rig.start(child, kind, 1000)
        if kind == "sleep":
            os.kill(child.pid, signal.SIGSTOP)
        time.sleep(0.01)
        child.kill_tree()
        assert rig.exit(child).signal == signal.SIGKILL
