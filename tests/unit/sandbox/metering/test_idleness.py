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

PATIENCE_S = 10.0


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
