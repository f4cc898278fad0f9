"""Beasts that change their own process in ways that would affect the next job.

They run in a pool with one slot, and each is followed by `look`: what it sees must be
the same as in a fresh process.
"""

# Written as users write:
# ruff: noqa: PLW0108, PTH101, PTH106, PTH109, PTH118, PTH123, PTH208, PTH211, SIM115, T201

import array
import asyncio
import builtins
import ctypes
import decimal
import faulthandler
import fcntl
import gc
import inspect
import json
import locale
import logging
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings

from beasts import Verdict, beast, jobs, libc

PR_SET_DUMPABLE, PR_SET_TIMERSLACK = 4, 29
CLONE_NEWNET = 0x40000000
FS_IOC_SETFLAGS, IMMUTABLE, EXTENTS = 0x40086602, 0x10, 0x80000
KEPT = []


@jobs.job("solo", kind="zoo.inspect", max_attempts=1)
def inspect_process():
    """Report what an ordinary handler can see of the state of its process."""
    mask = os.umask(0)
    os.umask(mask)
    seen = {
        "result": json.loads(json.dumps({"a": [1]})),
        "ids": _kind_of_ids(),
        "cwd": os.getcwd(),
        "root": sorted(os.listdir("/")),
        "umask": mask,
        "environ": sorted(set(os.environ) - {"TMPDIR"}),
        "locale": locale.setlocale(locale.LC_ALL),
        "timezone": time.tzname,
        "signals": [str(signal.getsignal(s)) for s in (1, 2, 13, 14, 15, 17)],
        "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "limits": [resource.getrlimit(which) for which in range(16) if which != 2],
        "nice": os.nice(0),
        "cpus": sorted(os.sched_getaffinity(0)),
        "scheduler": os.sched_getscheduler(0),
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "traced": [sys.gettrace() is None, sys.getprofile() is None],
        "threads": threading.active_count(),
        "socket": socket.getdefaulttimeout(),
        "decimal": [decimal.getcontext().prec, decimal.DefaultContext.prec],
        "logging": logging.root.manager.disable,
        "interfaces": sorted(name for _index, name in socket.if_nameindex()),
        "programs_see": subprocess.run(
            ["printenv", "LEFT"], stdout=subprocess.PIPE, text=True, check=False
        ).stdout,
        "warnings": len(warnings.filters),
        "digits": getattr(sys, "get_int_max_str_digits", int)(),
        "meta_path": len(sys.meta_path),
        "tmp": [os.listdir(_tmp()), len(os.listdir(tempfile.mkdtemp()))],
        "tempfile": tempfile.gettempdir() == os.environ["TMPDIR"],
        "stdin": sys.stdin.read(),
        "open": open(os.devnull).read(),
    }
    print("printed", file=sys.stderr)
    return json.loads(json.dumps(seen))


def _kind_of_ids():
    """Name this user, without the number: at level strict each has its own."""
    users, groups = set(os.getresuid()), set(os.getresgid())
    return [len(users), len(groups), 0 in users, 65533 in users, os.getgroups()]


def _replace(module, *names):
    def broken(*_args, **_kwargs):
        raise RuntimeError("replaced by a beast")

    for name in names:
        setattr(module, name, broken)


def _remove(path):
    os.rmdir(path)
    return path


def _full(path):
    for number in range(500):
        with open(os.path.join(path, f"{number}\n\udcff"), "w") as file:
            file.write("x")


def _loud(event, _arguments):
    raise RuntimeError(event)


def _deny_open(event, _arguments):
    if event == "open":
        raise PermissionError(event)


def _die_soon():
    """Have SIGALRM arrive in 20 ms, without a handler."""
    timer = ctypes.c_void_p()
    libc.timer_create(1, None, ctypes.byref(timer))
    libc.timer_settime(timer, 0, struct.pack("llll", 0, 0, 0, 20_000_000), None)


def _fix(path):
    flags = array.array("i", [IMMUTABLE | EXTENTS])
    fcntl.ioctl(os.open(path, os.O_RDONLY), FS_IOC_SETFLAGS, flags)


def _tmp():
    return os.environ["TMPDIR"]


CHANGES = {
    "uid": lambda: os.setuid(65533),
    "effective_uid": lambda: os.seteuid(65533),
    "groups": lambda: os.setgroups([65533]),
    "chroot": lambda: os.chroot(_tmp()),
    "cwd": lambda: os.chdir("/"),
    "cwd_gone": lambda: os.rmdir(os.chdir(_tmp()) or _tmp()),
    "umask": lambda: os.umask(0o777),
    "environment": os.environ.clear,
    "environment_replaced": lambda: setattr(os, "environ", {}),
    "environment_of_programs": lambda: os.putenv("LEFT", "1"),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
    "timezone": lambda: (os.environ.update(TZ="Asia/Tokyo"), time.tzset()),
    "signal_handlers": lambda: [signal.signal(s, print) for s in (1, 2, 14, 15)],
    "signals_blocked": lambda: signal.pthread_sigmask(0, signal.valid_signals()),
    "ends_ignored": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    "wakeup_descriptor": lambda: signal.set_wakeup_fd(
        KEPT.append(socket.socketpair())
        or (KEPT[-1][0].setblocking(False))
        or KEPT[-1][0].fileno()
    ),
    "timer": lambda: (
        signal.signal(signal.SIGALRM, lambda *_: 1 / 0),
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001),
    ),
    "kernel_timer": _die_soon,
    "limit_of_data": lambda: resource.setrlimit(
        resource.RLIMIT_DATA, (1 << 22, resource.getrlimit(resource.RLIMIT_DATA)[1])
    ),
    "limit_of_files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)),
    "limit_of_file_size": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    "limit_of_processes": lambda: resource.setrlimit(resource.RLIMIT_NPROC, (0, 0)),
    "limit_of_stack": lambda: resource.setrlimit(
        resource.RLIMIT_STACK, (1 << 20, 1 << 20)
    ),
    "nice": lambda: os.nice(1),
    "cpus": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "scheduler": lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
    "not_dumpable": lambda: libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0),
    "timer_slack": lambda: libc.prctl(PR_SET_TIMERSLACK, 10**9, 0, 0, 0),
    "recursion_limit": lambda: sys.setrecursionlimit(300),
    "recursion_limit_high": lambda: sys.setrecursionlimit(10**6),
    "switch_interval": lambda: sys.setswitchinterval(100),
    "gc_off": gc.disable,
    "gc_threshold": lambda: gc.set_threshold(1, 1, 1),
    "gc_callback": lambda: gc.callbacks.append(lambda *_: 1 / 0),
    "gc_debug": lambda: gc.set_debug(gc.DEBUG_SAVEALL),
    "trace": lambda: sys.settrace(lambda *_: None),
    "profile": lambda: sys.setprofile(lambda *_: None),
    "fault_handler_off": faulthandler.disable,
    "fault_handler_later": lambda: faulthandler.dump_traceback_later(0.05, exit=True),
    "socket_timeout": lambda: socket.setdefaulttimeout(0.001),
    "decimal": lambda: setattr(decimal.getcontext(), "prec", 2),
    "decimal_default": lambda: setattr(decimal.DefaultContext, "prec", 2),
    "logging_off": lambda: logging.disable(logging.CRITICAL),
    "network_namespace": lambda: libc.unshare(CLONE_NEWNET),
    "warnings": lambda: warnings.simplefilter("error"),
    "digits": lambda: sys.set_int_max_str_digits(700),
    "seed": lambda: random.seed(0),
    "path": lambda: sys.path.clear(),
    "path_hooks": lambda: sys.meta_path.clear(),
    "import": lambda: _replace(builtins, "__import__"),
    "builtins": lambda: _replace(builtins, "open", "print", "len", "sorted", "repr"),
    "builtins_gone": lambda: [delattr(builtins, n) for n in ("set", "str", "print")],
    "modules": lambda: sys.modules.clear(),
    "json": lambda: _replace(json, "dumps", "loads"),
    "os_functions": lambda: _replace(os, "umask", "getcwd", "chdir", "listdir"),
    "os_getpid": lambda: setattr(os, "getpid", lambda: 1),
    "os_exit": lambda: _replace(os, "_exit"),
    "os_stat": lambda: _replace(os, "stat", "fstat", "lstat", "read", "pread"),
    "signal_functions": lambda: _replace(signal, "signal", "setitimer", "getsignal"),
    "time_functions": lambda: _replace(time, "monotonic", "perf_counter", "sleep"),
    "threading_functions": lambda: _replace(threading, "enumerate", "active_count"),
    "gc_functions": lambda: _replace(gc, "isenabled", "enable", "disable"),
    "removal": lambda: (_full(_tmp()), _replace(shutil, "rmtree")),
    "frames": lambda: _empty_frames(),
    "audit_hook": lambda: sys.addaudithook(_loud),
    "audit_hook_on_open": lambda: sys.addaudithook(_deny_open),
    "streams_closed": lambda: (sys.stdout.close(), sys.stderr.close()),
    "streams_gone": lambda: (os.close(0), os.close(1), os.close(2)),
    "streams_replaced": lambda: (
        setattr(sys, "stdout", None),
        setattr(sys, "stderr", object()),
    ),
    "stdin_replaced": lambda: os.dup2(os.open("/dev/zero", 0), 0),
    "scratch_removed": lambda: _remove(_tmp()),
    "scratch_forbidden": lambda: (_full(_tmp()), os.chmod(_tmp(), 0)),
    "scratch_link_to_root": lambda: os.symlink("/", _remove(_tmp())),
    "scratch_is_a_file": lambda: open(_remove(_tmp()), "w").close(),
    "scratch_immutable": lambda: _fix(_tmp()),
    "scratch_full": lambda: _full(_tmp()),
    "descriptors": lambda: [os.dup(0) for _ in range(500)],
    "all_descriptors": lambda: _dup_until_it_fails(),
    "inotify": lambda: [libc.inotify_init() for _ in range(200)],
    "ports": lambda: KEPT.extend(
        socket.create_server(("127.0.0.1", 0)) for _ in range(100)
    ),
    "loop_left_open": lambda: KEPT.append(asyncio.new_event_loop()),
    "thread_hooks": lambda: threading.settrace(lambda *_: 1 / 0),
    "thread_profile": lambda: threading.setprofile(lambda *_: 1 / 0),
    "exception_hooks": lambda: setattr(sys, "excepthook", None),
}
"""Each thing that is changed, by the name of the beast that does it."""


def _empty_frames():
    """Take objects out of the child's internals."""
    for info in inspect.stack(0):
        for value in info.frame.f_locals.values():
            if type(value).__name__ == "Baseline":
                vars(value).clear()


def _dup_until_it_fails():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    try:
        while True:
            os.dup(0)
    except OSError:
        return


def _enter(name, change):
    def meddle():
        try:
            change()
        except (OSError, ValueError) as exc:
            return f"not possible: {exc}"  # for an ordinary user, say

    meddle.__name__ = f"meddle_{name}"
    return beast(Verdict(""), pool="solo", timeout="2s")(meddle)


MEDDLERS = [_enter(name, change) for name, change in CHANGES.items()]
