"""Handlers that do to their process what jobs do to theirs."""

# Written as users write:
# ruff: noqa: BLE001, PTH102, PTH106, PTH109, PTH110, PTH115, PTH118, PTH123, PTH208, PTH211
# ruff: noqa: SIM115, T201

import ctypes
import faulthandler
import locale
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from fake_application import FakeApplication

from jobpool.core import running
from jobpool.core.job import NewJob
from jobpool.errors import GiveUp, RetryLater, SoftTimeout
from jobpool.sandbox import scratch

app = FakeApplication()
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
def hold_interpreter(_):
    max(range(10**13))  # one C loop, without a look at signals


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
    """Leave four descendants that try to get away; write their pids."""
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
def change(what):
    """Change one thing about this process."""
    changes = {
        "cwd": lambda: os.chdir("/"),
        "cwd_gone": _stand_in_deleted,
        "umask": lambda: os.umask(0o777),
        "env": lambda: os.environ.update(LEAKED="1", PATH="/nowhere"),
        "env_replaced": lambda: setattr(os, "environ", {"LEAKED": "1"}),
        "handler": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        "alarm": lambda: signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001),
        "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}),
        "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
        "stdout": lambda: setattr(sys, "stdout", open(os.devnull, "w")),
        "stdout_closed": sys.stdout.close,
        "fds_closed": lambda: (os.close(1), os.close(2)),
        "path": lambda: sys.path.insert(0, "/leaked"),
        "recursion": lambda: sys.setrecursionlimit(5000),
        "hook": lambda: setattr(sys, "excepthook", print),
        "tempfile": lambda: setattr(tempfile, "tempdir", "/"),
        "scratch": lambda: open(os.path.join(os.environ["TMPDIR"], "left"), "w"),
        "scratch_gone": lambda: os.rmdir(os.environ["TMPDIR"]),
        "scratch_file": lambda: _put_in_place_of_scratch(os.mknod),
        "scratch_link": lambda: _put_in_place_of_scratch(lambda p: os.symlink("/", p)),
        "scratch_empty_link": _link_scratch_to_an_empty_directory,
        "scratch_mode": _open_scratch_to_others,
        "trace": lambda: sys.settrace(lambda *_: None),
        "socket_timeout": lambda: socket.setdefaulttimeout(0.5),
    }
    if what == "alarm":
        signal.signal(signal.SIGALRM, _boom)
    changes[what]()


def _stand_in_deleted():
    place = tempfile.mkdtemp()
    os.chdir(place)
    os.rmdir(place)


def _put_in_place_of_scratch(make):
    os.rmdir(os.environ["TMPDIR"])
    make(os.environ["TMPDIR"])


def _open_scratch_to_others():
    Path(os.environ["TMPDIR"]).chmod(0o755)


def _link_scratch_to_an_empty_directory():
    elsewhere = tempfile.mkdtemp(dir=Path(os.environ["TMPDIR"]).parent)
    _put_in_place_of_scratch(lambda path: os.symlink(elsewhere, path))


def _boom(_signum, _frame):
    raise RuntimeError("a timer of the handler's")


@app.handler
def state(_):
    mask = os.umask(0)
    os.umask(mask)
    sys.stdout.flush()
    return {
        "cwd": os.getcwd(),
        "umask": mask,
        "env": dict(os.environ),
        "sigterm": repr(signal.getsignal(signal.SIGTERM)).split(" at ")[0],
        "itimer": signal.getitimer(signal.ITIMER_REAL),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "locale": locale.setlocale(locale.LC_ALL),
        "stdout": sys.stdout.closed or sys.stdout.fileno(),
        "writable": os.write(1, b"x"),
        "path": sys.path,
        "recursion": sys.getrecursionlimit(),
        "hook": repr(sys.excepthook),
        "tempdir": tempfile.gettempdir(),
        "scratch": os.listdir(os.environ["TMPDIR"]),
        "scratch_mode": oct(os.lstat(os.environ["TMPDIR"]).st_mode),
        "trace": repr(sys.gettrace()),
        "socket_timeout": socket.getdefaulttimeout(),
    }


@app.handler
def leave(what):
    if what == "thread":
        threading.Thread(
            target=time.sleep, args=(60,), name="leaked-thread", daemon=True
        ).start()
    elif what == "process":
        subprocess.Popen(SLEEP)
    elif what == "zombie":
        subprocess.Popen(["true"])
    elif what == "ending thread":
        threading.Thread(target=time.sleep, args=(0.002,)).start()


def _fd_of(part):
    """Return this process's descriptor of a file whose name has a part."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if part in os.readlink(f"/proc/self/fd/{name}"):
                return int(name)
        except FileNotFoundError:
            continue
    raise LookupError(part)


@app.handler
def harm_marks(how):
    fd = _fd_of("/mark.")
    if how == "truncate":
        os.ftruncate(fd, 0)
    elif how == "close":
        os.close(fd)
    else:
        os.dup2(os.open(how, os.O_RDWR), fd)


@app.handler
def change_for_good(what):
    if what == "priority":
        os.nice(1)
    elif what == "descriptors":
        for _ in range(70):
            os.dup(0)


@app.handler
def arm_fault_handler(seconds):
    faulthandler.dump_traceback_later(seconds, exit=True)


@app.handler
def hold_scratch(_):
    """Put something there that cannot be removed, as far as the child knows."""
    scratch.remove_tree = lambda _path: False
    tempfile.mkstemp()


@app.handler
def nest(depth):
    os.chdir(os.environ["TMPDIR"])
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")


@app.handler
def fork_and_return(path):
    """Come back from the handler twice, once in each process."""
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
def time_reset(_):
    """Return the seconds that one reset of this child takes."""
    frame = sys._getframe()
    while "self" not in frame.f_locals or not hasattr(
        frame.f_locals["self"], "_baseline"
    ):
        frame = frame.f_back
    baseline = frame.f_locals["self"]._baseline
    baseline.restore()
    begun = time.perf_counter()
    for _ in range(200):
        baseline.restore()
    return (time.perf_counter() - begun) / 200


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
    """Run away: a process that forks on and ends, in new sessions, without end."""
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
    time.sleep(1000)
