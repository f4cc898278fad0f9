"""Beasts that start processes and threads and leave them behind."""

# Written as users write:
# ruff: noqa: S602

import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from beasts import (
    SUCCEEDED,
    TIMED_OUT,
    TIMEOUT,
    beast,
    crashed,
    hangs,
    libc,
    succeeds,
    system_call,
)

CLONE_PARENT = 0x8000
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
SLEEP = ["sleep", "1000"]
KEPT = []


def detach(work):
    """Do it in a daemon, the classic way: two forks and a new session."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    work()
    os._exit(0)


def sleep_on():
    time.sleep(1000)


@succeeds
def program_left():
    subprocess.Popen(SLEEP)


@succeeds
def shell_left():
    subprocess.run("nohup sleep 1000 >&- 2>&- &", shell=True, check=True)


@succeeds
def daemon():
    detach(sleep_on)


@succeeds
def daemon_without_environment():
    detach(lambda: os.execve("/bin/sleep", SLEEP, {}))


@succeeds
def daemon_holds_everything():
    """It keeps every descriptor open and ignores every signal."""

    def deaf():
        for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(signum, signal.SIG_IGN)
        sleep_on()

    detach(deaf)


@hangs
def daemon_and_hang():
    detach(sleep_on)
    sleep_on()


@succeeds
def daemons_of_daemons():
    detach(lambda: [detach(sleep_on) for _ in range(3)] and sleep_on())


@succeeds
def stopped_process():
    os.kill(subprocess.Popen(SLEEP).pid, signal.SIGSTOP)


@succeeds
def zombies():
    for _ in range(50):
        if os.fork() == 0:
            os._exit(0)


@succeeds
def orphans():
    """Processes that end after their parents, at any time."""
    for number in range(30):
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(number / 1000)
            os._exit(0)


@hangs
def fork_bomb():
    """Bounded: other processes on this machine must survive."""
    for _ in range(6):
        os.fork()
    sleep_on()


@beast(crashed(signal.SIGSEGV))
def fork_bomb_and_crash():
    itself = os.getpid()
    for _ in range(5):
        os.fork()
    if os.getpid() != itself:
        sleep_on()
    time.sleep(0.05)
    ctypes.string_at(0)


@hangs
def hopper():
    """A process that forks and exits without end, in new sessions."""
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
    sleep_on()


@beast(crashed(signal.SIGKILL))
def hopper_left_by_a_crash():
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@succeeds
def copy_returns():
    """Return from the handler twice."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)


@succeeds
def copy_raises():
    pid = os.fork()
    if pid == 0:
        raise ValueError("the copy's")
    os.waitpid(pid, 0)


@succeeds
def copy_outlives_it():
    if os.fork() == 0:
        time.sleep(0.5)


@succeeds
def threads_left():
    for _ in range(100):
        threading.Thread(target=sleep_on, daemon=True).start()


@succeeds
def thread_executor_left():
    KEPT.append(ThreadPoolExecutor(4))
    KEPT[-1].submit(time.sleep, 1000)


@succeeds
def threads_that_fork():
    def breed():
        while True:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

    for _ in range(3):
        threading.Thread(target=breed, daemon=True).start()


@succeeds
def event_loop_left():
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(1000), loop)


@succeeds
def process_pool_left():
    KEPT.append(multiprocessing.get_context("fork").Pool(3))
    KEPT[-1].apply_async(time.sleep, (1000,))


@succeeds
def ignores_ends_of_processes():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(5):
        subprocess.Popen(["true"])


@beast(TIMED_OUT, timeout=TIMEOUT)
def misleading_name():
    """Its line in /proc/PID/stat reads like another process's."""
    for name in (b") Z 1 1 1 (", b"a\nState: Z\nb"):
        libc.prctl(PR_SET_NAME, name, 0, 0, 0)
        if os.fork() == 0:
            sleep_on()
    sleep_on()


@succeeds
def wants_to_die_with_its_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@succeeds(at={"off": SUCCEEDED})
def lets_its_tree_go():
    """Its orphans are no longer adopted by it."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    detach(sleep_on)


@succeeds
def brother_of_its_own():
    """Start a process that is not below it, but beside it."""
    answer, _ = system_call("clone", CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if answer == 0:
        sleep_on()


@succeeds
def world_of_its_own():
    """A process that is pid 1 of new namespaces, where that is possible."""
    command = ["unshare", "--user", "--pid", "--fork", "--kill-child", *SLEEP]
    subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(0.05)


@succeeds
def session_leader_of_programs():
    for _ in range(4):
        subprocess.Popen(SLEEP, start_new_session=True, cwd="/", env={})


@succeeds
def program_that_forks_late():
    code = "import os,time\nwhile os.fork()==0: time.sleep(.002)\ntime.sleep(1000)"
    subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    time.sleep(0.03)
