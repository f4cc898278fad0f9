"""A new child gives up what it does not need, before anything of the user's runs.

One that is enclosed first changes what it can see, and who it is: both take the
capabilities that it has in its new namespaces, and gives up.

The order matters: no_new_privs first, because an ordinary user may only then restrict
itself; the filter of system calls last, because it forbids some that come before it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import msgspec

from jobpool.core.isolation.measures import Enclosure, Lockdown
from jobpool.sandbox.confinement import landlock, mounts, namespaces, seccomp
from jobpool.sandbox.confinement.scratch import Scratch, scratch_path
from jobpool.sandbox.protocol.messages import Go
from jobpool.sandbox.system.libc import PR_SET_NO_NEW_PRIVS, prctl

ALWAYS_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/pts")
"""Devices that hold nothing; programs cannot do without them."""


def absolute(lockdown: Lockdown) -> Lockdown:
    """Hang relative paths on the working directory, which an enclosure changes."""
    if lockdown.write is None:
        return lockdown
    paths = tuple(os.path.abspath(path) for path in lockdown.write)  # noqa: PTH100 - a str here
    return msgspec.structs.replace(lockdown, write=paths)


def data_bound_bytes(go: Go) -> int:
    """Return the highest memory limit that a child knows of; 0: it bounds nothing.

    The supervisor may not be allowed to raise the bound of another user's process, and
    a job may have a higher limit than its pool's.
    """
    if go.lockdown.enclosure is Enclosure.OWN_USER:
        return 0
    return go.memory_backstop_bytes


def make_scratch(go: Go, lockdown: Lockdown, needed: Sequence[str]) -> Scratch | None:
    """Make this process's temporary directory; in an enclosure, all that is around it.

    Args:
        go: who it is.
        lockdown: what is to be in force, with absolute paths.
        needed: what Python and the application need to see.

    Raises:
        JobpoolError: something cannot be shown; the child must not run anything.
        OSError: the kernel refused; likewise.
    """
    if not go.tmp_root:
        return None
    path = scratch_path(go.tmp_root, go.slot_name)
    if not _is_enclosed(lockdown):
        return Scratch(path)
    uid = namespaces.own_user(lockdown.enclosure)
    os.makedirs(path, 0o700, exist_ok=True)  # noqa: PTH103 - a str here
    writable = lockdown.write or ()
    mounts.enter(
        mounts.View(
            path,
            (*needed, *lockdown.read, *writable),
            hidden=go.hidden,
            writable=writable,
            size_bytes=go.memory_backstop_bytes,
            uid=uid,
        )
    )
    namespaces.drop_privileges(uid)
    return Scratch(mounts.OWN, is_home=True)


def apply(
    lockdown: Lockdown, scratch: str | None, spared: Collection[int] = ()
) -> None:
    """Restrict this process, and all that it will start, for ever.

    Args:
        lockdown: what is to be in force.
        scratch: its temporary directory.
        spared: processes and threads whose cores it must not choose.

    Raises:
        JobpoolError: the kernel refused; the child must not run anything.
        OSError: likewise.
    """
    if lockdown.cpus is not None:
        os.sched_setaffinity(0, lockdown.cpus)
    if lockdown.nice:
        os.nice(lockdown.nice)
    if lockdown.no_new_privs:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    if lockdown.signals or lockdown.write is not None:
        _enter_domain(lockdown, scratch)
    if lockdown.syscalls or not lockdown.network:
        seccomp.install(
            processes=lockdown.syscalls,
            network=lockdown.network,
            surface=not _is_enclosed(lockdown),
            # An enclosed one has numbers of its own, in which nobody else has any.
            spared=() if _is_enclosed(lockdown) else spared,
        )


def _is_enclosed(lockdown: Lockdown) -> bool:
    return lockdown.enclosure is not Enclosure.NONE


def _enter_domain(lockdown: Lockdown, scratch: str | None) -> None:
    scopes = landlock.Scope.SIGNALS if lockdown.signals else landlock.Scope(0)
    if lockdown.write is None:
        landlock.restrict(scopes=scopes)
        return
    paths = [*ALWAYS_WRITABLE, *lockdown.write]
    if scratch is not None:
        paths.append(scratch)
    if not _is_enclosed(lockdown):
        landlock.restrict(
            scopes=scopes, denied=landlock.WRITE, granted=[(landlock.WRITE, paths)]
        )
        return
    landlock.restrict(
        scopes=scopes | landlock.Scope.ABSTRACT_SOCKETS,
        denied=landlock.READ | landlock.WRITE,
        granted=[
            (landlock.READ, ["/"]),  # the view's: what is outside has another root
            (landlock.WRITE, [*paths, *mounts.WRITABLE]),
        ],
    )
