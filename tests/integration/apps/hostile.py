"""Handlers that do to their process what jobs do to theirs."""

# Written as users write:
# ruff: noqa: BLE001, PTH110, PTH115, PTH123, PTH208
# ruff: noqa: SIM115, T201

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

import hostile_state
from fake_application import FakeApplication

from jobpool.core.application import current as running
from jobpool.core.jobs.job import NewJob
from jobpool.errors import GiveUp, RetryLater, Snooze, SoftTimeout

app = FakeApplication()
for handler in hostile_state.HANDLERS:
    app.handler(handler)
SLEEP = ["sleep", "1000"]


@app.handler
def echo(value):
    return value


@app.handler
def say(text):
    print(text)
    sys.stderr.write("and to stderr\n")


@app.handler
def flood(mebibytes):
    for _ in range(mebibytes):
        os.write(1, b"x" * 1023 * 1024 + b"\n")


@app.handler
def exit_now(code):
    os._exit(code)


@app.handler
def kill_self(signum):
    os.kill(os.getpid(), signum)
    time.sleep(60)


@app.handler
def null_dereference(_):
    ctypes.string_at(0)


@app.handler
def sleep(seconds):
    time.sleep(seconds)
    return "slept"


@app.handler
def take_usr2(_):
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


@app.handler
def hold_interpreter(_):
    max(range(10**13))  # one C loop that never checks for signals


@app.handler
def raise_it(name):
    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError("no text for you")

    errors = {
        "value": ValueError("bad value"),
        "give_up": GiveUp("never works"),
        "later": RetryLater("5m", "vendor down"),
        "later_bad": RetryLater("soon"),
        "snooze": Snooze("5m", "vendor busy"),
        "snooze_plain": Snooze(timedelta(0)),
        "snooze_negative": Snooze(-1),
        "snooze_endless": Snooze(float("inf")),
        "snooze_long": Snooze("8d"),
        "snooze_of_nothing": Snooze(None),
        "snooze_of_words": Snooze("soon"),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "surrogate": ValueError("\ud800 broken"),
        "huge": ValueError("x" * 100_000),
        "unprintable": Unprintable(),
        "group": ExceptionGroup("several", [ValueError("a"), SoftTimeout("b")]),
        "memory": MemoryError(),
    }
    raise errors[name]


@app.handler
def recurse(_):
    return recurse(_)


@app.handler
def spawn_tree(path):
    """Leave four descendants that try to escape; write their pids."""
    script = f"""
import os, subprocess, sys, time
def note(): open({path!r}, "a").write(f"{{os.getpid()}}\\n")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note(); time.sleep(1000)
    os._exit(0)
if os.fork() == 0:
    os.setsid(); note(); time.sleep(1000)
note(); time.sleep(1000)
"""
    subprocess.Popen([sys.executable, "-c", script], env={})
    while not os.path.exists(path) or len(open(path).read().split()) < 3:
        time.sleep(0.005)


@app.handler
def spawn_tree_and_wait(path):
    spawn_tree(path)
    time.sleep(1000)


@app.handler
def spawn_tree_and_crash(path):
    spawn_tree(path)
    os.kill(os.getpid(), signal.SIGSEGV)


@app.handler
def spawn_stopped(_):
    child = subprocess.Popen(SLEEP)
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(1000)


@app.handler
def fork_and_return(path):
    """Return from the handler twice, once in each process."""
    pid = os.fork()
    if pid == 0:
        return "the copy"
    _, status = os.waitpid(pid, 0)
    return {"copy_exit": os.waitstatus_to_exitcode(status)}


@app.handler
def fork_and_ask(_):
    pid = os.fork()
    if pid == 0:
        try:
            running.channel().enqueue([])
        except Exception as exc:
            os._exit(7 if type(exc).__name__ == "UsageError" else 8)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.handler
def use_multiprocessing(module):
    multiprocessing = __import__(module)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2])


@app.handler
def who(_):
    current = running.current()
    return {
        "id": current.id,
        "kind": current.kind,
        "attempt": current.attempt,
        "token": current.token,
        "checkpoint": current.checkpoint,
        "stopping": current.stopping,
    }


@app.handler
def beat_slowly(count):
    for number in range(count):
        running.current().heartbeat(progress=number)
        time.sleep(0.025)


@app.handler
def beat(values):
    for progress, checkpoint in values:
        running.current().heartbeat(progress=progress, checkpoint=checkpoint)


@app.handler
def enqueue(count):
    jobs = [NewJob(kind="echo", pool="cpu", payload=b"{}") for _ in range(count)]
    return [made.id for made in running.channel().enqueue(jobs)]


@app.handler
def wait_for_stop(_):
    while not running.current().stopping:
        time.sleep(0.005)
    return "stopped"


@app.handler
def soft(_):
    try:
        os.write(1, b"may be told")
        time.sleep(60)
    except SoftTimeout:
        return "cleaned up"


@app.handler
def spin(_):
    while True:
        pass


@app.handler
def allocate(mebibytes):
    block = b"x" * (mebibytes * 2**20)
    return len(block)


@app.handler
def hold(mebibytes):
    block = b"x" * (mebibytes * 2**20)
    time.sleep(1000)
    return len(block)


@app.handler
def hold_in_two(mebibytes):
    block = b"x" * (mebibytes * 2**20)
    if os.fork() == 0:
        time.sleep(1000)
    time.sleep(1000)
    return len(block)


@app.handler
def fds(_):
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return found


@app.handler
def kill_and_go_on(signum):
    os.kill(os.getpid(), signum)


@app.handler
def term_a_program(_):
    program = subprocess.Popen(SLEEP)
    program.terminate()
    return program.wait()


@app.handler
def flood_and_wait(mebibytes):
    flood(mebibytes)
    os.write(1, b"the end")
    time.sleep(1000)


@app.handler
def say_and_die(text):
    print(text)
    os._exit(1)


@app.handler
def write_garbage(_):
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), b"\x02\x00\x00\x00{}")
        except OSError:
            continue
    time.sleep(1000)


@app.handler
def leave_a_file_and_die(_):
    tempfile.mkstemp()
    os._exit(1)


@app.handler
def term_a_copy(_):
    """Fork a copy that waits, end it with SIGTERM, and return its status."""
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@app.handler
def hop(_):
    """Run away: fork and exit without end, in new sessions."""
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
    time.sleep(1000)
