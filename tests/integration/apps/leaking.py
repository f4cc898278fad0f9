"""Handlers that change what is not seen at once, and one that tells what it finds."""

import _thread
import array
import ctypes
import decimal
import fcntl
import logging
import os
import platform
import posix
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from fake_application import FakeApplication

from jobpool.sandbox.reset import after_attempt, native_threads

app = FakeApplication()
decimal.getcontext().prec = 20  # so that there is a context before all attempts
KEPT = []
PATIENCE = native_threads.ENDING_S, native_threads.SPINNING_S
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
FIXED = {"immutable": 0x10, "append": 0x20}
SECCOMP = {"x86_64": 317, "aarch64": 277}[platform.machine()]
CLONE_NEWNET, CLONE_NEWUTS = 0x40000000, 0x04000000
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
ENDING_S = 60.0
"""A busy machine needs longer than 20 ms for what is ending anyway."""


@app.handler
def state(_):
    """Report what an ordinary handler finds."""
    wakeup = signal.set_wakeup_fd(-1)
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
    with tempfile.TemporaryDirectory() as made:
        placed = str(Path(made).parent)
    programs = subprocess.run(["env", "-0"], stdout=subprocess.PIPE, check=True)
    return {
        "wakeup": wakeup,
        "traced": threading.gettrace() is not None,
        "profiled": threading.getprofile() is not None,
        "programs": sorted(programs.stdout.decode().split("\0")),
        "logging": logging.root.manager.disable,
        "third": str(decimal.Decimal(1) / 3),
        "default": repr(decimal.DefaultContext),
        "inherited": repr(decimal.Context()),
        "placed": placed,
    }


@app.handler
def change(what):
    """Change one thing that is put back."""
    CHANGES[what]()


@app.handler
def change_for_good(what):
    """Change one thing that is not put back. Report why it failed, if it did."""
    try:
        FOR_GOOD[what]()
    except OSError as error:
        return os.strerror(error.errno)
    return "done"


@app.handler
def is_watched(_):
    """Report whether this process counts as one with native code in it."""
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "_baseline"):
        frame = frame.f_back
    return frame.f_locals["self"]._baseline._native_code.is_here


def _wake():
    KEPT.append(socket.socketpair())
    KEPT[-1][0].setblocking(False)
    signal.set_wakeup_fd(KEPT[-1][0].fileno())


def _fix(how):
    place = os.open(os.environ["TMPDIR"], os.O_RDONLY)
    flags = array.array("i", [0])
    try:
        fcntl.ioctl(place, FS_IOC_GETFLAGS, flags, True)
        flags[0] |= FIXED[how]
        fcntl.ioctl(place, FS_IOC_SETFLAGS, flags)
    finally:
        os.close(place)


def _round():
    for context in (decimal.DefaultContext, decimal.getcontext()):
        context.prec = 2
        context.rounding = decimal.ROUND_UP
        context.traps[decimal.Inexact] = True


def _clear():
    ctypes.CDLL(None).clearenv()
    os.putenv("ONLY", "1")


def _watch_files():
    """Have the kernel tell this process, by SIGIO, of each new file there."""
    with tempfile.TemporaryDirectory() as made:
        KEPT.append(os.open(Path(made).parent, os.O_RDONLY))
    fcntl.fcntl(KEPT[-1], fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_MULTISHOT)


CHANGES = {
    "watched_files": _watch_files,
    "wakeup": _wake,
    "thread_trace": lambda: threading.settrace(lambda *_: 1 / 0),
    "thread_profile": lambda: threading.setprofile(lambda *_: 1 / 0),
    "putenv": lambda: os.putenv("LEAKED", "1"),
    "putenv_over": lambda: os.putenv("PATH", os.environ["PATH"] + ":/nowhere"),
    "unsetenv": lambda: os.unsetenv("TMPDIR"),
    "clearenv": _clear,
    "logging": lambda: logging.disable(logging.CRITICAL),
    "decimal": _round,
    "immutable": lambda: _fix("immutable"),
    "append": lambda: _fix("append"),
}


def _checked(answer):
    if answer == -1:
        raise OSError(ctypes.get_errno(), "refused")


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _timer(libc=None):
    """Have SIGALRM arrive in a minute: it ends whatever runs then."""
    libc, timer = libc or _libc(), ctypes.c_void_p()
    _checked(libc.timer_create(1, None, ctypes.byref(timer)))
    minute = struct.pack("llll", 0, 0, 60, 0)
    _checked(libc.timer_settime(timer, 0, minute, None))


def _start_native(function, argument):
    """Start a thread that Python does not know, in a function of the C library."""
    libc = _libc()
    start = ctypes.cast(getattr(libc, function), ctypes.c_void_p)
    _checked(
        -libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, start, argument)
    )


def _start_pool():
    """Start two threads that wait for work from this process."""
    KEPT.append(ctypes.create_string_buffer(64))  # a sem_t
    before = set(Path("/proc/self/task").iterdir())
    for _ in range(2):
        _start_native("sem_wait", ctypes.byref(KEPT[-1]))
    fresh = set(Path("/proc/self/task").iterdir()) - before
    while any(native_threads._state(int(one.name)) != "rests" for one in fresh):
        time.sleep(0.001)  # however long the machine is busy with others


def _start_brief():
    native_threads.ENDING_S = native_threads.SPINNING_S = ENDING_S
    _start_native("usleep", ctypes.c_void_p(2000))


def _start_pause():
    native_threads.ENDING_S, native_threads.SPINNING_S = PATIENCE
    _start_native("pause", None)


def _late(act):
    """Do something in a thread that ends shortly after the handler."""
    after_attempt.GRACE_S = ENDING_S
    threading.Thread(target=lambda: (time.sleep(0.004), act())).start()


def _filter():
    """Install a filter of system calls that lets all of them pass."""
    allow = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(allow))
    libc = _libc()
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.syscall(SECCOMP, 1, 0, program))


def _lower_data():
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, hard))


def _lower_data_for_good():
    soft, _hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = 1 << 40
    soft = most if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_DATA, (soft, most))


def _few_files(*, by_a_program=False):
    """Lower the limit of open files."""
    if by_a_program:
        command = ["prlimit", f"--pid={os.getpid()}", "--nofile=99:99"]
        subprocess.run(command, check=True)
    else:
        resource.prlimit(0, resource.RLIMIT_NOFILE, (99, 99))


def _refuse_open(event, _arguments):
    if event == "open":
        raise PermissionError("no files")


def _hide_a_thread():
    _thread._count = lambda: 0
    threading.Thread(target=threading.Event().wait, name="hidden", daemon=True).start()


FOR_GOOD = {
    "native_pause": _start_pause,
    "native_sleep": lambda: _start_native("sleep", ctypes.c_void_p(1000)),
    "native_pool": _start_pool,
    "native_brief": _start_brief,
    "hidden_thread": _hide_a_thread,
    "timer": _timer,
    "timer_by_pythonapi": lambda: _timer(ctypes.pythonapi),
    "timer_by_handle": lambda: _timer(
        ctypes.CDLL(None, handle=ctypes.pythonapi._handle)
    ),
    "chosen_signal": lambda: fcntl.fcntl(KEPT.append(os.pipe()) or KEPT[-1][0], 10, 15),
    "late_files": lambda: _late(_few_files),
    "filter": _filter,
    "privileges": lambda: _checked(_libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)),
    "undumpable": lambda: _checked(_libc().prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)),
    "data": _lower_data,
    "data_hard": _lower_data_for_good,
    "files": _few_files,
    "files_by_a_program": lambda: _few_files(by_a_program=True),
    "groups": lambda: posix.setgroups([12345]),
    "modules": sys.modules.clear,
    "one_module": lambda: sys.modules.pop("tempfile"),
    "audit_hook": lambda: sys.addaudithook(_refuse_open),
    "network": lambda: _checked(_libc().unshare(CLONE_NEWNET)),
    "host_name": lambda: _checked(_libc().unshare(CLONE_NEWUTS)),
    "python_unshare": lambda: os.unshare(0),
}
