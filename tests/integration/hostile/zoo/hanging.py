"""Beasts that never return."""

# Written as users write:
# ruff: noqa: ASYNC251, BLE001, PTH118, PTH123, S110, SIM105, SIM115

import asyncio
import fcntl
import gc
import os
import queue
import re
import signal
import socket
import tempfile
import threading
import time

from beasts import TIMED_OUT, TIMEOUT, Verdict, beast, hangs, system_call

CLONE_VFORK = 0x4000
LONG_TIMEOUT = "2s"
"""Of those whose stack is looked at: they hang by then on a busy machine, too."""


def timed_out(stack):
    reason = f"killed at its time limit of {LONG_TIMEOUT}"
    return TIMED_OUT._replace(reason=reason, stack=stack)


@hangs
def busy():
    while True:
        pass


@beast(timed_out("in sleep_for_ever"), timeout=LONG_TIMEOUT)
def sleep_for_ever():
    time.sleep(1000)


@beast(timed_out("in interpreter_held"), timeout=LONG_TIMEOUT)
def interpreter_held():
    max(range(10**13))


@hangs
def bigint():
    return len(str(7 ** (10**8)))


@hangs
def regex():
    re.match(r"(a+)+b", "a" * 64)


@hangs
def deadlock():
    lock = threading.Lock()
    with lock, lock:
        pass


@hangs
def thread_never_joins():
    hanging = threading.Thread(target=time.sleep, args=(1000,))
    hanging.start()
    hanging.join()


@hangs
def empty_queue():
    queue.Queue().get()


@hangs
def ignores_signals():
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(signum, signal.SIG_IGN)
    while True:
        time.sleep(1)


@hangs
def blocks_signals():
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    while True:
        signal.sigwait(signal.valid_signals())


@hangs
def stops_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


@hangs
def stops_its_group():
    os.killpg(0, signal.SIGSTOP)


@hangs
def stopped_again_and_again():
    """A copy of it stops it again whenever it continues."""
    itself = os.getpid()
    if os.fork() == 0:
        while True:
            os.kill(itself, signal.SIGSTOP)
    time.sleep(1000)


@beast(TIMED_OUT, timeout=TIMEOUT, soft_timeout="0.1s")
def swallows_everything():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass


@hangs
def timer_storm():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
    while True:
        pass


@hangs
def waits_in_the_kernel():
    """Its copy waits in the kernel before exec: it is in D state until it is killed."""
    answer, _ = system_call("clone", CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0)
    if answer == 0:
        while True:
            time.sleep(1000)


@hangs
def destructor():
    class Sticky:
        def __del__(self):
            time.sleep(1000)

    Sticky()


@hangs
def collector():
    gc.callbacks.append(lambda *_: time.sleep(1000))
    gc.collect()


@hangs
def finally_hangs():
    try:
        raise ValueError
    finally:
        time.sleep(1000)


@hangs
def fifo():
    path = os.path.join(os.environ["TMPDIR"], "fifo")
    os.mkfifo(path)
    open(path)


@hangs
def accepts_nobody():
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(os.environ["TMPDIR"], "socket"))
        server.listen()
        server.accept()


@hangs
def file_lock():
    path = tempfile.mkstemp()[1]
    with open(path) as first, open(path) as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


@hangs
async def loop_blocked():
    time.sleep(1000)


@beast(TIMED_OUT, timeout=TIMEOUT, soft_timeout="0.1s")
async def ignores_cancellation():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass


@beast(
    Verdict("stalled", "killed after 300ms without a heartbeat", signal=9),
    heartbeat_timeout="0.3s",
)
def silent():
    time.sleep(1000)


@hangs
def another_program():
    os.execvp("sleep", ["sleep", "1000"])
