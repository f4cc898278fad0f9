"""Makes this Python look as if it ran on Windows or macOS: what is Linux's is gone.

It is no such system: paths, files and consoles are still Linux's. What it shows is that
nothing that is not there is asked for. What the standard library and other packages
take from the system they have imported before, as they would there in their own ways.
"""

import ctypes
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import types
from pathlib import Path

TESTS = Path(__file__).parents[2]
SYSTEMS = {"windows": "win32", "macos": "darwin"}
NEEDED = (
    *("asyncio", "click", "concurrent.futures", "json", "multiprocessing.connection"),
    *("psutil", "pdb", "rich.console", "rich.live", "rich.table", "sqlite3"),
    *("tempfile", "threading", "unittest.mock", "uuid", "webbrowser"),
)
"""Looks at the system when it is imported."""
ALSO = "ELSEWHERE_ALSO"
"""The variable that names more such modules, of packages that a program uses."""
LINUX_ONLY = {
    os: (
        *("eventfd", "memfd_create", "pidfd_open", "sched_getaffinity"),
        *("sched_getscheduler", "sched_setaffinity", "splice", "timerfd_create"),
        *("O_PATH", "O_TMPFILE", "SCHED_OTHER"),
    ),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGSTKFLT"),
    socket: ("AF_NETLINK", "AF_VSOCK", "MSG_NOSIGNAL", "SO_PEERCRED", "SOCK_CLOEXEC"),
    time: ("CLOCK_BOOTTIME",),
}
POSIX_MODULES = (
    *("_posixsubprocess", "fcntl", "grp", "posix_ipc", "pty", "pwd", "readline"),
    *("resource", "syslog", "termios", "tty"),
)
POSIX_ONLY = {
    os: (
        *("chown", "environb", "fchmod", "fchown", "fork", "forkpty", "getegid"),
        *("geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpriority"),
        *("getuid", "killpg", "mkfifo", "nice", "openpty", "pipe2", "posix_spawn"),
        *("pread", "pwrite", "register_at_fork", "setsid", "statvfs", "sysconf"),
        *("uname", "wait4", "waitid", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW"),
        *("O_NONBLOCK", "WNOHANG"),
    ),
    select: ("poll",),
    signal: (
        *("pthread_kill", "pthread_sigmask", "setitimer", "sigwait", "SIGALRM"),
        *("SIGBUS", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT"),
        *("SIGSTOP", "SIGTRAP", "SIGTSTP", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGWINCH"),
    ),
    socket: ("AF_UNIX", "MSG_DONTWAIT", "recv_fds", "send_fds"),
    time: ("CLOCK_MONOTONIC", "clock_gettime", "pthread_getcpuclockid"),
}
HIDDEN = ("/proc", "/sys/fs")


def leave(system):
    """Take away what *system* does not have."""
    for name in (*NEEDED, *os.environ.get(ALSO, "").split()):
        __import__(name)
    sysconfig.get_config_vars()  # by a module that each system has of its own
    gone = [LINUX_ONLY, POSIX_ONLY] if system == "windows" else [LINUX_ONLY]
    if system == "windows":
        sys.modules["msvcrt"] = _msvcrt(sys.modules.pop("fcntl", None))
        sys.modules |= dict.fromkeys(POSIX_MODULES)
        ctypes.CDLL = None  # ctypes.CDLL(None) is no library there
        os.getlogin = lambda: "ann"  # asks a terminal here, and the system there
        signal.SIGBREAK = signal.SIGINT
    for module, names in ((m, n) for table in gone for m, n in table.items()):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    _hide()
    sys.platform = SYSTEMS[system]


def _msvcrt(fcntl):
    """Return its `locking`, by POSIX's locks: one byte where the file stands."""
    if fcntl is None:
        import fcntl
    module = types.ModuleType("msvcrt")
    module.LK_UNLCK, module.LK_NBLCK = 0, 2

    def locking(fd, mode, nbytes):
        kind = fcntl.LOCK_EX | fcntl.LOCK_NB if mode else fcntl.LOCK_UN
        fcntl.lockf(fd, kind, nbytes, 0, os.SEEK_CUR)

    module.locking = locking
    return module


def _hide():
    """Let nobody but psutil, which has other ways elsewhere, see what is Linux's."""
    os_stat = os.stat

    def is_hidden(path):
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.fsdecode(path).startswith(HIDDEN) and not _is_psutils()

    def stat(path, **options):
        if is_hidden(path):
            raise FileNotFoundError(2, "hidden", path)
        return os_stat(path, **options)

    def hook(event, args):
        if event in {"open", "os.listdir", "os.scandir"} and is_hidden(args[0]):
            raise FileNotFoundError(2, "hidden", args[0])

    os.stat = stat
    sys.addaudithook(hook)


def _is_psutils():
    frame = sys._getframe(2)
    while frame is not None:
        if "psutil" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def words_of(system, program, *words):
    """Return the command line of a program there; None is this system itself.

    A program is a text of Python, or a module's name after ``-m``.
    """
    if system is None:
        return [sys.executable, *(["-c"] if program != "-m" else []), program, *words]
    return [sys.executable, "-c", _PROLOGUE, system, program, *words]


def surroundings(env=None):
    """Return the environment of a program there."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **(env or {}), "PYTHONPATH": os.pathsep.join(paths)}


def run(system, program, *words, cwd, env=None, timeout_s=180):
    """Run a program there, as `words_of` has it."""
    return subprocess.run(
        words_of(system, program, *words),
        cwd=cwd,
        env=surroundings(env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


_PROLOGUE = f"from {__name__} import _main; _main()"


def _main():
    _, system, program, *words = sys.argv
    sys.argv = [program, *words]
    leave(system)
    if program == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        exec(compile(program, "<elsewhere>", "exec"), {"__name__": "__main__"})  # noqa: S102
