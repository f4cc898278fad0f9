"""A new child gives up what it does not need, before any of the user's code runs.

An enclosed child first changes its view of the file system and its user. Both take the
capabilities that it has in its new namespaces, which it then gives up.

The order matters. no_new_privs comes first, because without it an unprivileged process
may not restrict itself. The seccomp filter comes last, because it denies some of the
system calls made before it.
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
"""Devices that store nothing, and that programs depend on."""


def absolute(lockdown: Lockdown) -> Lockdown:
    """Make paths absolute: an enclosure changes the working directory."""
    if lockdown.write is None:
        return lockdown
    paths = tuple(os.path.abspath(path) for path in lockdown.write)  # noqa: PTH100 - a str here
    return msgspec.structs.replace(lockdown, write=paths)


def data_bound_bytes(go: Go) -> int:
    """Return the memory limit from which a child bounds its own data; 0: no bound.

    A child that becomes another user sets no bound: a job may have a higher limit than
    its pool, and the supervisor may not be allowed to raise another user's bound.
    """
    if go.lockdown.enclosure is Enclosure.OWN_USER:
        return 0
    return go.memory_backstop_bytes


def make_scratch(go: Go, lockdown: Lockdown, needed: Sequence[str]) -> Scratch | None:
    """Make this process's temporary directory and, in an enclosure, its whole view.

    Args:
        go: the child's identity and limits.
        lockdown: the restrictions to apply, with absolute paths.
        needed: paths that Python and the application must be able to see.

    Raises:
        JobpoolError: a path cannot be shown; the child must not run anything.
        OSError: the kernel refused; the child must not run anything.
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
    """Restrict this process and everything that it starts, permanently.

    Args:
        lockdown: the restrictions to apply.
        scratch: the child's temporary directory, if it has one.
        spared: ids of processes and threads whose CPU affinity it must not set.

    Raises:
        JobpoolError: the kernel refused; the child must not run anything.
        OSError: the kernel refused; the child must not run anything.
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
            # In a PID namespace of its own, a child cannot name anybody else's threads.
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
            (landlock.READ, ["/"]),  # the view's root: the host's files are not in it
            (landlock.WRITE, [*paths, *mounts.WRITABLE]),
        ],
    )
