"""A process whose system calls are observed, refused or its last, one by one.

Theory of operation. The parent forks; the child installs a seccomp filter that stops at
each call named in `CALLS` and asks the parent (user notification), which reads the
call's number and arguments and answers: continue, fail with this errno, or it kills the
child where it stands. No program has to be started for a point, so one costs a few
milliseconds, not the 50 of a tracer's start.

The child reports its progress by a call that nothing else makes: `tell` is a
posix_fadvise on no descriptor. The parent sees it in the order of all other calls, so
what was reported before a kill was reported before it.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html, seccomp_unotify(2).
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import traceback
from pathlib import Path
from typing import NamedTuple

_NUMBERS = {
    "x86_64": {
        "access": 21,
        "clock_nanosleep": 230,
        "fadvise64": 221,
        "fallocate": 285,
        "fchmod": 91,
        "fcntl": 72,
        "fdatasync": 75,
        "fsync": 74,
        "ftruncate": 77,
        "getdents64": 217,
        "mkdir": 83,
        "mmap": 9,
        "newfstatat": 262,
        "openat": 257,
        "pread64": 17,
        "pwrite64": 18,
        "recvfrom": 45,
        "rename": 82,
        "rmdir": 84,
        "seccomp": 317,
        "sendto": 44,
        "unlink": 87,
        "unlinkat": 263,
        "write": 1,
    },
    "aarch64": {
        "clock_nanosleep": 115,
        "faccessat": 48,
        "fadvise64": 223,
        "fallocate": 47,
        "fchmod": 52,
        "fcntl": 25,
        "fdatasync": 83,
        "fsync": 82,
        "ftruncate": 46,
        "getdents64": 61,
        "mkdirat": 34,
        "mmap": 222,
        "newfstatat": 79,
        "openat": 56,
        "pread64": 67,
        "pwrite64": 68,
        "recvfrom": 207,
        "renameat": 38,
        "seccomp": 277,
        "sendto": 206,
        "unlinkat": 35,
        "write": 64,
    },
}
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP, _REPORT, _SLEEP = "seccomp", "fadvise64", "clock_nanosleep"
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_SET_MODE_FILTER, _NEW_LISTENER, _SPEC_ALLOW = 1, 1 << 3, 1 << 2
_PR_SET_NO_NEW_PRIVS = 38
_PIDFD_GETFD = 438  # on every architecture
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTICE = struct.Struct("=QII iIQ 6Q")
_ANSWER = struct.Struct("=QqiI")
_INSTRUCTION = struct.Struct("=HBBI")
_NOBODY = -7
"""No descriptor: calls on it are what the child tells."""
_LOCKING = frozenset({fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_GETLK})
PATIENCE_S = 60.0
UNLOCK = "unlock"
"""How a call of fcntl is named that gives a lock back."""
KILL = -1
"""A decision: the child ends where it stands, before the call."""
GO_ON = 0
"""A decision: the call is made."""


class Call(NamedTuple):
    """One call, before it is made.

    Attributes:
        name: as the manual calls it.
        arguments: its six arguments as unsigned numbers.
        pid: the thread that makes it.
    """

    name: str
    arguments: tuple[int, ...]
    pid: int

    def memory(self, at, length):
        """Return bytes of the caller's memory."""
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as file:
            file.seek(at)
            return file.read(length)

    def text(self, at):
        """Return the path that an argument points at."""
        left = 4096 - at % 4096  # never over a page that may not be there
        found = self.memory(at, left)
        if b"\0" not in found:
            found += self.memory(at + left, 4096)
        return os.fsdecode(found.partition(b"\0")[0])

    def hang_up(self):
        """Shut the connection down that the first argument is."""
        process = os.pidfd_open(self.pid)
        try:
            fd = _libc.syscall(
                ctypes.c_long(_PIDFD_GETFD),
                ctypes.c_int(process),
                ctypes.c_int(self.arguments[0]),
                ctypes.c_uint(0),
            )
        finally:
            os.close(process)
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"pidfd_getfd: {os.strerror(number)}")
        with contextlib.suppress(OSError), socket.socket(fileno=fd) as connection:
            connection.shutdown(socket.SHUT_RDWR)

    def file(self):
        """Return what the first argument, a descriptor, is open on."""
        return os.readlink(f"/proc/{self.pid}/fd/{self.arguments[0]}")  # noqa: PTH115 - may be no path


class Told(NamedTuple):
    """What the child said: two numbers of its own choice."""

    what: int
    figure: int


class Ended(NamedTuple):
    """How a child ended.

    Attributes:
        code: its exit code; below zero: the signal that ended it.
        said: what it wrote for a person, such as a traceback.
    """

    code: int
    said: str


def is_available():
    """Say whether this machine's calls are known and the kernel tells them."""
    if platform.machine() not in _NUMBERS:
        return False
    return run(lambda: None, lambda _call: GO_ON, lambda _report: None).code == 0


def report(what, figure=0):
    """Say something to the parent; it has heard it when this returns."""
    _libc.syscall(
        ctypes.c_long(_numbers()[_REPORT]),
        ctypes.c_long(_NOBODY),
        ctypes.c_long(what),
        ctypes.c_long(figure),
        ctypes.c_long(0),
    )


def run(act, decide, hear, before=None, only=None):
    """Run a function in a child whose system calls are observed.

    Args:
        act: what the child does; an exception is its traceback and exit code 1.
        before: what the child does first, unobserved.
        decide: gets each `Call`, returns `GO_ON`, `KILL` or an errno.
        hear: gets each `Told`; the child waits until it returns.
        only: the names of calls that are observed; None: all. Each costs the parent two
            calls of its own, and most runs are about one name.

    Raises:
        TimeoutError: it made no call for so long; it was killed.
    """
    ours, its = socket.socketpair()
    with ours, its:
        pid = os.fork()
        if pid == 0:
            _be_child(act, its, before, only)
        its.close()
        try:
            listener = _take_listener(ours)
            if listener is not None:
                try:
                    _listen(listener, pid, decide, hear)
                finally:
                    os.close(listener)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        _, status = os.waitpid(pid, 0)
        said = b"".join(iter(lambda: ours.recv(65536), b""))
    return Ended(os.waitstatus_to_exitcode(status), said.decode("utf-8", "replace"))


def _take_listener(ours):
    try:
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    except ConnectionResetError:
        return None
    return fds[0] if fds else None  # It could not make one: it says why.


def _be_child(act, its, before, only):
    code = 1
    try:
        if before is not None:
            before()
        listener = _install(only)
        socket.send_fds(its, [b"l"], [listener])
        os.close(listener)
        act()
        code = 0
    except BaseException:  # noqa: BLE001 - told, and the exit code says it
        its.sendall(traceback.format_exc().encode("utf-8", "replace")[-20_000:])
    finally:
        os._exit(code)


def _listen(listener, pid, decide, hear):
    names = {number: name for name, number in _numbers().items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    buffer = bytearray(_NOTICE.size)
    empty = bytes(_NOTICE.size)
    while True:
        ready = poll.poll(PATIENCE_S * 1000)
        if not ready:
            raise TimeoutError(f"the child made no call for {PATIENCE_S:g} s")
        if not ready[0][1] & select.POLLIN:
            return  # No process is under the filter any more.
        buffer[:] = empty
        try:
            fcntl.ioctl(listener, _RECEIVE, buffer)
        except OSError as exc:
            if exc.errno in {errno.ENOENT, errno.EINTR}:
                continue  # Its caller is gone.
            raise
        at, caller, _, number, _, _, *arguments = _NOTICE.unpack(buffer)
        name = names[number]
        if name == _SLEEP:
            _reply(listener, _ANSWER.pack(at, 0, 0, 0))  # It has slept.
            continue
        if name == _REPORT and arguments[0] == _unsigned(_NOBODY):
            hear(Told(arguments[1], arguments[2]))
            decision = GO_ON
        elif name == "fcntl" and arguments[1] not in _LOCKING:
            decision = GO_ON
        else:
            decision = decide(_as_seen(Call(name, tuple(arguments), caller)))
        if decision == KILL:
            os.kill(pid, signal.SIGKILL)
            return
        _reply(listener, _ANSWER.pack(at, 0, -decision, 0 if decision else _CONTINUE))


def _as_seen(call):
    """Distinguish taking a lock from releasing it."""
    if call.name != "fcntl":
        return call
    (lock_type,) = struct.unpack("=h", call.memory(call.arguments[2], 2))
    return call._replace(name=UNLOCK) if lock_type == fcntl.F_UNLCK else call


def _reply(listener, reply):
    try:
        fcntl.ioctl(listener, _SEND, reply)
    except OSError as exc:
        if exc.errno != errno.ENOENT:  # It has died of something else.
            raise


def _install(only):
    numbers = _numbers()
    names = numbers.keys() - {_SECCOMP}
    if only is not None:
        wanted = {"fcntl" if name == UNLOCK else name for name in only}
        names &= wanted | {_REPORT, _SLEEP}
    seen = [numbers[name] for name in names]
    code = [
        _INSTRUCTION.pack(0x20, 0, 0, 4),
        _INSTRUCTION.pack(0x15, 1, 0, _AUDIT[platform.machine()]),
        _INSTRUCTION.pack(0x06, 0, 0, _ALLOW),
        _INSTRUCTION.pack(0x20, 0, 0, 0),
        *(
            _INSTRUCTION.pack(0x15, len(seen) - place, 0, number)
            for place, number in enumerate(seen)
        ),
        _INSTRUCTION.pack(0x06, 0, 0, _ALLOW),
        _INSTRUCTION.pack(0x06, 0, 0, _NOTIFY),
    ]
    program = b"".join(code)
    prepared = _Filter(len(code), program)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = _libc.syscall(
        ctypes.c_long(numbers[_SECCOMP]),
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(_NEW_LISTENER | _SPEC_ALLOW),
        ctypes.byref(prepared),
    )
    if listener < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no filter of system calls: {os.strerror(number)}")
    return listener


def _numbers():
    return _NUMBERS[platform.machine()]


def _unsigned(number):
    return number & (2**64 - 1)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


_libc = ctypes.CDLL(None, use_errno=True)
