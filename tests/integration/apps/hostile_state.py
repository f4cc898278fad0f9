"""Handlers that change their process, and one that tells what it is like."""

# Written as users write:
# ruff: noqa: PTH102, PTH106, PTH109, PTH115, PTH118, PTH123, PTH208, PTH211
# ruff: noqa: SIM115

import faulthandler
import fcntl
import gc
import importlib
import inspect
import locale
import os
import pickle
import posix
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from jobpool.sandbox.confinement import scratch
from jobpool.sandbox.reset import after_attempt

SLEEP = ["sleep", "1000"]


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
        "stdout_elsewhere": lambda: os.dup2(os.open(os.devnull, os.O_RDWR), 1),
        "stdout_overwrites": lambda: fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK),
        "stderr_elsewhere": lambda: os.dup2(os.memfd_create("elsewhere"), 2),
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


def raise_again_and_again(_, depth=500):
    """Have a timer raise again before a stack of this depth can be described."""
    if depth:
        raise_again_and_again(_, depth - 1)
    signal.signal(signal.SIGALRM, _boom)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    while True:
        pass


def state(_):
    mask = os.umask(0)
    os.umask(mask)
    sys.stdout.flush()
    return {
        "cwd": os.getcwd(),
        "argv": sys.argv,
        "collects": gc.isenabled(),
        "umask": mask,
        "env": dict(os.environ),
        "sigterm": repr(signal.getsignal(signal.SIGTERM)).split(" at ")[0],
        "itimer": signal.getitimer(signal.ITIMER_REAL),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "locale": locale.setlocale(locale.LC_ALL),
        "stdout": sys.stdout.closed or sys.stdout.fileno(),
        "writable": os.write(1, b"x"),
        "streams": [os.path.samestat(os.fstat(fd), os.fstat(1)) for fd in (0, 1, 2)],
        "path": sys.path,
        "recursion": sys.getrecursionlimit(),
        "hook": repr(sys.excepthook),
        "tempdir": tempfile.gettempdir(),
        "scratch": os.listdir(os.environ["TMPDIR"]),
        "scratch_mode": oct(os.lstat(os.environ["TMPDIR"]).st_mode),
        "trace": repr(sys.gettrace()),
        "socket_timeout": socket.getdefaulttimeout(),
    }


ENDING = {"zombie", "ending thread", "late process", "late timer"}
ENDING_S = 60.0
"""A busy machine needs longer than 20 ms for what is ending anyway."""
GRACE_S = after_attempt.GRACE_S


def leave(what):
    if what in ENDING:
        after_attempt.GRACE_S = ENDING_S
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
    elif what == "late process":
        _late(_start_what_stays)
    elif what == "late timer":
        _late(lambda: signal.setitimer(signal.ITIMER_REAL, 0.1))


def _start_what_stays():
    subprocess.Popen(SLEEP)
    after_attempt.GRACE_S = GRACE_S  # which does not end the wait for this thread


def _late(act):
    """Do something in a thread that ends shortly after the handler."""
    threading.Thread(target=lambda: (time.sleep(0.004), act())).start()


def _fd_of(part):
    """Return this process's highest descriptor of a file whose name has a part."""
    for fd in sorted(map(int, os.listdir("/proc/self/fd")), reverse=True):
        try:
            if part in os.readlink(f"/proc/self/fd/{fd}"):
                return fd
        except FileNotFoundError:
            continue
    raise LookupError(part)


def harm_marks(how):
    fd = _fd_of("/mark.")
    if how == "truncate":
        os.ftruncate(fd, 0)
    elif how == "grow":
        os.ftruncate(fd, 1 << 30)
    elif how == "close":
        os.close(fd)
    else:
        os.dup2(os.open(how, os.O_RDWR), fd)


def replace_own(arguments):
    """Replace one of the child's own descriptors with another file."""
    fd = _fd_of(arguments["part"])
    os.dup2(os.open(arguments["name"], os.O_RDWR), fd)
    return len(b"x" * (50 << 20))


def leave_a_stream(name):
    """Leave a stream that cannot be flushed, and a file at the number of stderr."""
    sys.stdout = open(f"{name}.log", "w")
    sys.stdout.write("held")
    os.closerange(0, 256)
    KEPT.extend(os.open(n, os.O_RDWR) for n in (os.devnull, os.devnull, name))


def mark_bytes(_):
    return os.fstat(_fd_of("/mark.")).st_size


def change_for_good(what):
    if what == "priority":
        os.nice(1)
    elif what == "descriptors":
        for _ in range(70):
            os.dup(0)
    elif what == "audit_hook":
        sys.addaudithook(_refuse)
    elif what == "limit":
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        signal.signal(signal.SIGTERM, _RefusesOnce())


class _RefusesOnce:
    """Cuts the first try to put its process back short, where it is compared."""

    def __init__(self):
        self.is_new = True

    def __call__(self, *_args):
        """Handle nothing."""

    def __eq__(self, other):
        if self.is_new:
            self.is_new = False
            raise RuntimeError("compared")
        return self is other

    __hash__ = None


def _refuse(event, _arguments):
    raise RuntimeError(event)


def arm_fault_handler(seconds):
    faulthandler.dump_traceback_later(seconds, exit=True)


def hold_scratch(_):
    """Make the child believe that something there cannot be removed."""
    scratch.remove_tree = lambda _path: False
    tempfile.mkstemp()


def nest(depth):
    os.chdir(os.environ["TMPDIR"])
    for _ in range(depth):
        os.mkdir("deep")
        os.chdir("deep")


def _baseline():
    """Return the baseline to which this child is reset."""
    frame = sys._getframe()
    while "self" not in frame.f_locals or not hasattr(
        frame.f_locals["self"], "_baseline"
    ):
        frame = frame.f_back
    return frame.f_locals["self"]._baseline


def time_reset(how):
    """Return the seconds that one reset of this child takes."""
    baseline = _baseline()
    baseline.restore()
    spent_s = []
    for _ in range(200):
        if how == "full":
            baseline._quick_until_s = 0.0
        begun_s = time.perf_counter()
        baseline.restore(may_be_quick=True)
        spent_s.append(time.perf_counter() - begun_s)
    # In a mean, a moment without a processor would count as much as ten of them.
    return statistics.median(spent_s)


def quick_check_after(what):
    """Say whether a quick check is enough after something, right after a full one."""
    acts = {
        "nothing": lambda: None,
        "a file": lambda: open(os.devnull).close(),
        "settings": lambda: sys.path.append("/leaked"),
        "cwd": lambda: os.chdir("/"),
        "umask": lambda: os.umask(0o77),
        "env": lambda: os.environ.update(LEAKED="1"),
        "a handler": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        "a timer": lambda: signal.alarm(100),
        "a mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP}),
        "cores": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        "a locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
        "a zone": time.tzset,
        "a limit": lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)
        ),
        "flags": lambda: fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK),
        "a descriptor": lambda: os.dup2(os.open(os.devnull, os.O_RDWR), 0),
        "input": lambda: open(0).read(),
        "stacks": lambda: signal.raise_signal(signal.SIGUSR2),
        "a program": lambda: subprocess.run(["true"], check=True),
        "a fork": _fork_in_vain,
        "a thread": lambda: _wait_for(threading.Thread(target=os.umask, args=(0o77,))),
        "output": lambda: sys.stdout.write("said"),
        "an interpreter": _import_interpreters,
        "a while": lambda: time.sleep(0.02),
        "a name less": lambda: delattr(time, "sleep"),
    }
    baseline = _baseline()
    baseline.restore()
    acts[what]()
    return baseline.restore(may_be_quick=True).is_quick


def _fork_in_vain():
    if pid := os.fork():
        os.waitpid(pid, 0)
    else:
        os._exit(0)


def _wait_for(thread):
    thread.start()
    thread.join()


def _import_interpreters():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def slip_past_notes(_):
    """Set the umask through the original function behind the recording one."""
    os.umask._function(0o777)


KEPT = []


def keep_memory(mebibytes):
    """Hold so much memory and release what was held before."""
    KEPT[:] = [b"x" * (mebibytes << 20)] if mebibytes else []


def close_and_open(arguments):
    """Close all descriptors, as daemons do, and keep some files open."""
    os.closerange(3, arguments["up_to"])
    for name in arguments["names"]:
        fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.write(fd, b"a user's data")
        KEPT.append(fd)


class _Closes:
    close = os.close


def ask_about_functions(_):
    return {
        "takes descriptors": os.chdir in os.supports_fd,
        "pickled": pickle.loads(pickle.dumps(os.nice)) is os.nice,
        "the same": os.umask is posix.umask,
        "no method": _Closes().close(os.dup(0)) is None,
        "signature": list(inspect.signature(signal.signal).parameters),
    }


HANDLERS = (
    change,
    raise_again_and_again,
    state,
    leave,
    harm_marks,
    change_for_good,
    arm_fault_handler,
    hold_scratch,
    nest,
    time_reset,
    quick_check_after,
    slip_past_notes,
    ask_about_functions,
    keep_memory,
    close_and_open,
    mark_bytes,
    replace_own,
    leave_a_stream,
)
