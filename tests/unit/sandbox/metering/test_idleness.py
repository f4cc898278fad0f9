"""Whether a child is idle, by the kernel's view of its main thread."""

import os
import signal
import subprocess
import sys

import pytest

from jobpool.sandbox.metering import idleness
from jobpool.sandbox.metering.idleness import DOUBTS_MAX, SAMPLE_AFTER_S, Idleness
from jobpool.sandbox.system import procfs
from support.waiting import wait_until

PATIENCE_S = 30.0


@pytest.fixture
def busy():
    """Start a process that computes and makes no system call."""
    words = [sys.executable, "-S", "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_stopped_outside_any_system_call_is_not_idle(busy):
    """The kernel then shows no call and no arguments, which must not raise."""
    os.kill(busy.pid, signal.SIGSTOP)
    wait_until(
        lambda: procfs.process_stat(busy.pid).state == "T", PATIENCE_S, "it is stopped"
    )
    at_rest = Idleness(busy.pid)
    at_rest.begin()
    said = [at_rest.sample(n * SAMPLE_AFTER_S, ()) for n in range(1, DOUBTS_MAX + 1)]
    assert [bool(text) for text in said[:-1]] == [False] * (DOUBTS_MAX - 1)
    if procfs.read(f"/proc/{busy.pid}/syscall"):  # else the machine does not show it
        assert said[-1] == "does not wait for one"


@pytest.mark.parametrize(
    ("threads", "seen"),
    [
        # Each: for how much of a second it ran, and waited for a processor.
        ([(0.2, 0.8)], "uses 100% of a processor"),
        ([(0.3, 0.5), (0.0, 0.0)], "uses 60% of a processor"),
        ([(0.15, 0.85), (0.15, 0.85)], "uses 200% of a processor"),
        ([(0.2, 0.0)], ""),
        ([(0.2, 0.3)], ""),
        ([(0.01, 0.6)] * 12, ""),
        ([(0.08, 0.92)], ""),
    ],
)
def test_what_a_busy_machine_keeps_from_running_is_not_idle(monkeypatch, threads, seen):
    """Time in which no processor was free for a thread is not time at rest."""
    at_s = 0.0

    def times(_pid):
        for thread, (ran_s, waited_s) in enumerate(threads):
            yield thread, procfs.ThreadTimes(ran_s * at_s, waited_s * at_s)

    monkeypatch.setattr(idleness, "waits_for_a_job", lambda _pid: True)
    monkeypatch.setattr(procfs, "threads", times)
    monkeypatch.setattr(procfs, "cpu_s", lambda _pid: at_s * sum(t[0] for t in threads))
    at_rest = Idleness(os.getpid())
    at_rest.begin()
    said = []
    for _ in range(DOUBTS_MAX + 2):
        at_s += SAMPLE_AFTER_S
        said.append(at_rest.sample(at_s, ()))
    assert said[-1] == seen
    assert not any(said[:DOUBTS_MAX])


def test_the_scheduler_knows_what_a_thread_has_run(busy):
    """And it has waited no longer than it is there."""
    ((thread, times),) = procfs.threads(busy.pid)
    assert thread == busy.pid
    wait_until(
        lambda: dict(procfs.threads(busy.pid))[thread].ran_s > times.ran_s,
        PATIENCE_S,
        "it runs",
    )
    assert times.ran_s > 0
    assert times.waited_s >= 0
    busy.kill()
    busy.wait()
    assert list(procfs.threads(busy.pid)) == []


@pytest.mark.parametrize("first", ["shown", "hidden"])
def test_a_child_that_hides_what_it_showed_before_is_not_idle(monkeypatch, first):
    """If the machine or the application hid it from the start, that says nothing."""
    hidden = first == "hidden"

    def read(_path):
        if hidden:
            raise PermissionError
        return b""

    monkeypatch.setattr(procfs, "read", read)
    at_rest = Idleness(os.getpid())
    at_rest.learn()
    hidden = True
    at_rest.learn()
    at_rest.begin()
    said = [at_rest.sample(n * SAMPLE_AFTER_S, ()) for n in range(1, DOUBTS_MAX + 1)]
    assert said[-1] == ("hides what it does" if first == "shown" else "")


@pytest.mark.parametrize(
    ("shown", "rests"),
    [
        (b"7 0x7f00 0x2 0xffffffff 0x0 0x0 0x0 0x7ffc 0x7f01\n", True),
        (b"7 0x7f00 0x2 0x64 0x0 0x0 0x0 0x7ffc 0x7f01\n", False),
        (b"7 0x7f00 0x3 0xffffffff 0x0 0x0 0x0 0x7ffc 0x7f01\n", False),
        (b"202 0x7f00 0x2 0xffffffff 0x0 0x0 0x0 0x7ffc 0x7f01\n", False),
        (b"-1 0x7ffc 0x7f01\n", False),
        (b"running\n", False),
        (b"", True),
    ],
)
def test_the_kernels_view_of_a_system_call_is_understood(monkeypatch, shown, rests):
    """An endless poll of two descriptors is idle; so is a hidden call."""
    monkeypatch.setattr(idleness.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(procfs, "read", lambda _path: shown)
    assert idleness.waits_for_a_job(1) is rests
