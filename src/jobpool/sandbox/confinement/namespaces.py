"""A child's own namespaces, and the tiny init that is the first process in them.

Theory of operation. The first process of a PID namespace is no place for a job: the
kernel keeps signals from it, its own SIGKILL included, and shows an abort as something
else. So the zygote's middle process makes the namespaces and forks the init, which
falls to the supervisor as every child does; the init forks the job. The supervisor
waits for the init and looks after the job.

The init closes all that it has inherited, waits, and reaps what is left to it. When
the job has ended, it writes the job's exact end to a pipe, the relay, and ends; the
kernel then kills every process that is left in the namespace, and only after that the
supervisor sees the init's end. An end of the init without a word in the relay is the
end of all of them together, and counts as such: somebody has killed the init.

Nobody else can write to the relay: the job closes its copy before anything of the
user's runs in it, and may neither trace the init, nor signal it, nor take descriptors
from it (it cannot be dumped, is in no Landlock domain, and pidfd_getfd is filtered).

A process in a new user namespace has every capability there, which is what it takes to
make the other namespaces and mounts. `drop_privileges` gives all of them up.
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
"""Children of root are the users from here on, each by its pid: systemd's list of
numbers (UIDS-GIDS) knows of nobody else's above it."""
PROCESSES_MAX = 1024
EXIT_INIT_FAILED = 70
_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID = 0x20000, 0x8000000, 0x10000000, 0x20000000
_CAPABILITY_VERSION = 0x20080522
_ENDING = struct.Struct("<iddq")
_STANDARD_FDS = (0, 1, 2)


class Ending(NamedTuple):
    """How a job's process ended, as its init saw it."""

    status: int
    """As wait(2) tells it."""
    user_s: float
    system_s: float
    max_rss_kib: int


def make_namespaces(enclosure: Enclosure) -> None:
    """Put the processes that this one forks from now on into new namespaces.

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
        ("setgroups", "deny"),  # without this an ordinary user may not map its group
        ("gid_map", f"{gid} {gid} 1"),
        ("uid_map", f"{uid} {uid} 1"),
    ):
        Path("/proc/self", name).write_text(text, encoding="ascii")


def run_init(job: int, relay: int) -> NoReturn:
    """Live as the init of a namespace whose job has been forked. Never returns.

    Args:
        job: pid of the job, as this process sees it.
        relay: where the job's end is to be written.
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
    """Return pid and pidfd of the job that an init has forked, and nothing else yet.

    Raises:
        OSError: it is gone already.
    """
    for pid in children_of(init):
        pidfd = os.pidfd_open(pid)
        stat = process_stat(pid)
        if stat is not None and stat.parent == init:
            return pid, pidfd
        os.close(pidfd)  # somebody else has got its pid
    raise ProcessLookupError(errno.ESRCH, "it has ended before it was let go")


def read_ending(relay: int) -> Ending | None:
    """Return what the init, which has ended, has written; None: nothing."""
    try:
        data = os.read(relay, _ENDING.size)
    except BlockingIOError:
        return None
    return Ending(*_ENDING.unpack(data)) if len(data) == _ENDING.size else None


def own_user(enclosure: Enclosure) -> int:
    """Return the user that this process, which is not enclosed yet, is going to be.

    Its pid outside is what makes it the only process that is this user.
    """
    if enclosure is Enclosure.OWN_USER:
        return USERS_FROM + int(os.readlink("/proc/self"))  # noqa: PTH115 - a str
    return os.geteuid()


def drop_privileges(uid: int) -> None:
    """Become a user, give up every capability, and bound the number of processes.

    Args:
        uid: as `own_user` has said, before the new /proc was there.

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
    # A change of user makes /proc/self root's, where a process may not be dumped.
    prctl(PR_SET_DUMPABLE, 1)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard == resource.RLIM_INFINITY or hard > PROCESSES_MAX:
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES_MAX, PROCESSES_MAX))
