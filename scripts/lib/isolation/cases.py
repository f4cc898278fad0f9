"""The hostile jobs of `compare-isolation`, as plain functions for every system."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

LIMIT_S = 2
"""Set for every system that has a time limit."""
MEMORY_MIB = 256
"""Set for every system that has a memory limit."""
HOARD_MIB = 1024
"""What the hoarder allocates if nothing ends it."""


def note(*words: object) -> None:
    """Write a line to the notes file, out of any supervisor's control."""
    line = " ".join(map(str, (*words, os.getpid(), time.monotonic())))
    fd = os.open(
        f"{os.environ['COMPARE_DIR']}/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT
    )
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def canary(number: int) -> None:
    """Work for a moment, beside the hostile job."""
    time.sleep(0.1)
    note("canary", number)


def hostile(case: str) -> None:
    """Misbehave in the way of one case."""
    note("began", case)
    CASES[case]()
    note("ended", case)


def null_pointer() -> None:
    """Dereference null."""
    ctypes.string_at(0)


def exit_silently() -> None:
    """End without a result."""
    os._exit(0)


def kill_itself() -> None:
    """Die of SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def busy() -> None:
    """Loop in Python."""
    while True:
        pass


def interpreter_held() -> None:
    """Stay in one C call that holds the interpreter's lock."""
    max(range(10**13))


def deaf() -> None:
    """Ignore all signals that can be ignored, and swallow all exceptions."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)
    while True:
        try:
            time.sleep(1000)
        except BaseException:  # noqa: BLE001, S112 - on purpose
            continue


def stopped() -> None:
    """Stop itself."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hoard() -> None:
    """Allocate memory, note how much, and keep it for a while."""
    kept = []
    for mebibytes in range(0, HOARD_MIB, 32):
        note("holds", mebibytes)
        kept.append(b"x" * (32 << 20))
    time.sleep(1)


def hoard_in_programs() -> None:
    """Let four programs allocate it."""
    code = f"import time; kept = b'x' * ({HOARD_MIB // 4} << 20); time.sleep(1000)"
    programs = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(4)]
    time.sleep(1.5)
    note("holds", HOARD_MIB)
    for program in programs:
        program.kill()


def daemons() -> None:
    """Leave three processes in sessions of their own, and succeed."""
    for _ in range(2):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(1000)


def daemons_and_hang() -> None:
    """Leave them, and hang."""
    daemons()
    deaf()


def kill_the_parent() -> None:
    """Kill its parent process."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1)


def exit_the_interpreter() -> None:
    """Call sys.exit."""
    sys.exit(3)


def raise_base_exception() -> None:
    """Raise what `except Exception` does not catch."""
    raise KeyboardInterrupt


CASES = {
    work.__name__: work
    for work in (
        null_pointer,
        exit_silently,
        kill_itself,
        busy,
        interpreter_held,
        deaf,
        stopped,
        hoard,
        hoard_in_programs,
        daemons,
        daemons_and_hang,
        kill_the_parent,
        exit_the_interpreter,
        raise_base_exception,
    )
}
ENDLESS = ("busy", "interpreter_held", "deaf", "stopped", "daemons_and_hang")
MEMORY = ("hoard", "hoard_in_programs")
