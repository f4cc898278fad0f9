"""Beasts that attack the supervisor, its zygotes, its other children and beyond.

At level off nothing stops them, and they are not run.
"""

# Written as users write:
# ruff: noqa: PTH123, PTH208

import ctypes
import errno
import os
import resource
import signal
import time

from beasts import SUCCEEDED, beast, crashed, failed, libc, succeeds, system_call

AT_LARGE = {"off": None}
DENIED = failed("PermissionError")


def reaches(function):
    """Add a handler that must not get what it reaches for."""
    return beast(DENIED, at=AT_LARGE)(function)


def all_children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def others():
    """Return the supervisor's processes beside this one, zygotes included."""
    itself = os.getpid()
    return [pid for pid in all_children_of(os.getppid()) if pid != itself]


@reaches
def kill_the_supervisor():
    os.kill(os.getppid(), signal.SIGKILL)


@reaches
def stop_the_supervisor():
    os.kill(os.getppid(), signal.SIGSTOP)


@reaches
def drain_the_supervisor():
    os.kill(os.getppid(), signal.SIGTERM)


@beast(DENIED, at=AT_LARGE | {"strict": crashed(signal.SIGKILL)})
def kill_the_supervisors_group():
    os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)


@beast(failed("PermissionError: 0 of"), at=AT_LARGE)
def kill_all_the_others():
    reached = 0
    for pid in others():
        try:
            os.kill(pid, signal.SIGKILL)
            reached += 1
        except (PermissionError, ProcessLookupError):  # or it has just ended
            continue
    raise PermissionError(f"{reached} of {len(others())}")


@reaches
def signal_by_descriptor():
    signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGKILL)


@reaches
def signal_from_a_copy():
    supervisor = os.getppid()
    pid = os.fork()
    if pid == 0:
        try:
            os.kill(supervisor, signal.SIGKILL)
        except PermissionError:
            os._exit(13)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 13:
        raise PermissionError


@reaches
def signal_on_input():
    """Let the kernel send the signal, by the owner of a descriptor."""
    import fcntl
    import socket

    one, two = socket.socketpair()
    f_setsig, f_setown = 10, 8
    fcntl.fcntl(one, f_setown, os.getppid())
    fcntl.fcntl(one, f_setsig, signal.SIGKILL)
    flags = fcntl.fcntl(one, fcntl.F_GETFL)
    fcntl.fcntl(one, fcntl.F_SETFL, flags | os.O_ASYNC)
    two.send(b"x")
    time.sleep(0.1)
    raise PermissionError("nothing happened")


@reaches
def write_the_supervisors_memory():
    with open(f"/proc/{os.getppid()}/mem", "r+b"):
        pass


# Since Linux 6.16 a process with CAP_PERFMON may, whatever Landlock says.
@beast(DENIED, at=AT_LARGE | {"root": None})
def read_the_supervisors_environment():
    with open(f"/proc/{os.getppid()}/environ", "rb") as file:
        file.read()


@reaches
def open_the_supervisors_files():
    place = f"/proc/{os.getppid()}/fd"
    for name in os.listdir(place):
        os.open(f"{place}/{name}", os.O_RDWR)


@reaches
def trace_the_supervisor():
    ptrace_seize = 0x4206
    _, errno = system_call("ptrace", ptrace_seize, os.getppid(), 0, 0)
    raise OSError(errno, os.strerror(errno))


@reaches
def take_the_supervisors_descriptor():
    _, errno = system_call("pidfd_getfd", os.pidfd_open(os.getppid()), 0, 0)
    raise OSError(errno, os.strerror(errno))


# At level strict no other process is visible.
@beast(DENIED, at=AT_LARGE | {"strict": failed("IndexError")})
def read_a_neighbours_memory():
    word = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(word), 8)
    while libc.process_vm_readv(others()[-1], vector, 1, vector, 1, 0) < 0:
        # The newest is another beast's, which may be ending.
        if ctypes.get_errno() != errno.ESRCH:
            raise OSError(ctypes.get_errno(), "process_vm_readv")


@reaches
def limit_the_supervisors_files():
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))


@reaches
def limit_the_supervisors_writing():
    resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, 0))


@beast(DENIED, at=AT_LARGE | {"strict": SUCCEEDED})
def limit_its_neighbours():
    for pid in others():
        resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0))


@succeeds(at=AT_LARGE)
def leaves_its_session():
    """The supervisor searches its group for the tree; it may leave the group."""
    for act in (os.setsid, os.setpgrp):
        try:
            act()
        except PermissionError:
            continue
