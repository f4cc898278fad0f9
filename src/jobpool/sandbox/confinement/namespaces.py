"""A child's own namespaces, and the small init that is the first process in them.

Theory of operation. A job must not be the first process of a PID namespace: the kernel
withholds signals from that process, even a SIGKILL that it sends to itself, and an
abort does not show up as one. So the zygote's middle process creates the namespaces and
forks the init, which is reparented to the supervisor as every child is. The init forks
the job. The supervisor waits for the init and monitors the job.

The init closes the descriptors that it inherited, then waits and reaps orphans. When
the job has ended, the init writes the job's exact wait status and usage to a pipe, the
relay, and exits. The kernel then kills every process left in the namespace, and only
after that does the supervisor see the init's end. If the init ends without having
written to the relay, somebody has killed it, and every process in the namespace with
it; that is how it is recorded.

Nobody else can write to the relay. The job closes its copy before any of the user's
code runs in it. It may not trace the init, signal it or take descriptors from it: the
init is not dumpable, it is in no Landlock domain, and pidfd_getfd is filtered.

A process in a new user namespace has every capability there, which it needs to create
the other namespaces and the mounts. `drop_privileges` gives all of them up.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
from pathlib import Path
from typing import NamedTuple, NoReturn

from jobpool.core.isolation.measures import Enclosure
from jobpool.sandbox.confinement.setup import close_fds
from jobpool.sandbox.system.libc import PR_SET_DUMPABLE, checked, libc, prctl
from jobpool.sandbox.system.procfs import children_of, process_stat

USERS_FROM = 0x70000000
"""Children of root run as the users from this uid up, each at an offset of its pid.
systemd's registry of uid ranges (UIDS-GIDS) assigns nothing above it."""
PROCESSES_MAX = 1024
EXIT_INIT_FAILED = 70
_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID = 0x20000, 0x8000000, 0x10000000, 0x20000000
_CAPABILITY_VERSION = 0x20080522
_ENDING = struct.Struct("<iddq")
_STANDARD_FDS = (0, 1, 2)


class Ending(NamedTuple):
    """How a job's process ended, as its init saw it; times are in seconds of CPU."""

    status: int
    """The status from wait(2)."""
    user_s: float
    system_s: float
    max_rss_kib: int


def make_namespaces(enclosure: Enclosure) -> None:
    """Create namespaces for the processes that this one forks from now on.

    Raises:
        OSError: the kernel refused.
    """
    flags = _NEW_NS | _NEW_IPC | _NEW_PID
    if enclosure is not Enclosure.USER_NAMESPACE:
        checked(libc.unshare(flags), "unshare")
        return
    uid, gid = os.geteuid(), os.getegid()
    checked(libc.unshare(flags | _NEW_USER), "unshare")
    for name, text in (
        ("setgroups", "deny"),  # or an unprivileged process may not map its group
        ("gid_map", f"{gid} {gid} 1"),
        ("uid_map", f"{uid} {uid} 1"),
    ):
        Path("/proc/self", name).write_text(text, encoding="ascii")


def run_init(job: int, relay: int) -> NoReturn:
    """Act as the init of a namespace whose job has been forked. Never returns.

    Args:
        job: pid of the job, in this process's PID namespace.
        relay: descriptor to which the job's `Ending` is written.
    """
    try:
        prctl(PR_SET_DUMPABLE, 0)
        keep = {*_STANDARD_FDS, relay}
        fds = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - names
        close_fds(fds - keep)
        while True:
            pid, status, usage = os.wait4(-1, 0)
            if pid == job:
                ending = Ending(status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
                os.write(relay, _ENDING.pack(*ending))
                os._exit(0)
    finally:
        os._exit(EXIT_INIT_FAILED)


def pin_job(init: int) -> tuple[int, int]:
    """Return the pid and a pidfd of an init's job, which must be its only child so far.

    Raises:
        OSError: the job has ended already.
    """
    for pid in children_of(init):
        pidfd = os.pidfd_open(pid)
        stat = process_stat(pid)
        if stat is not None and stat.parent == init:
            return pid, pidfd
        os.close(pidfd)  # the pid has been reused
    raise ProcessLookupError(errno.ESRCH, "it has ended before it was let go")


def read_ending(relay: int) -> Ending | None:
    """Return what an init that has ended wrote to its relay; None: nothing."""
    try:
        data = os.read(relay, _ENDING.size)
    except BlockingIOError:
        return None
    return Ending(*_ENDING.unpack(data)) if len(data) == _ENDING.size else None


def own_user(enclosure: Enclosure) -> int:
    """Return the uid that this process, not enclosed yet, is going to have.

    With `Enclosure.OWN_USER` it comes from the pid outside the new PID namespace, so no
    two children share it.
    """
    if enclosure is Enclosure.OWN_USER:
        return USERS_FROM + int(os.readlink("/proc/self"))  # noqa: PTH115 - a str
    return os.geteuid()


def drop_privileges(uid: int) -> None:
    """Change to a user, give up every capability, and limit the number of processes.

    Args:
        uid: from `own_user`, called before the new /proc was mounted.

    Raises:
        OSError: the kernel refused.
    """
    if uid != os.geteuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    checked(libc.capset(header, none), "capset")
    # A change of user makes the process undumpable, and root then owns its /proc/self.
    prctl(PR_SET_DUMPABLE, 1)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard == resource.RLIM_INFINITY or hard > PROCESSES_MAX:
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES_MAX, PROCESSES_MAX))
