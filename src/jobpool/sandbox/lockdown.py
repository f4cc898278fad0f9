"""A new child gives up what it does not need, before anything of the user's runs.

The order matters: no_new_privs first, because an ordinary user may only then restrict
itself; the filter of system calls last, because it forbids some that come before it.
"""

from __future__ import annotations

import os

from jobpool.core.isolation import Lockdown
from jobpool.sandbox import landlock, seccomp
from jobpool.sandbox.tree import PR_SET_NO_NEW_PRIVS, prctl

ALWAYS_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/pts")
"""Devices that hold nothing; programs cannot do without them."""


def apply(lockdown: Lockdown, scratch: str | None) -> None:
    """Restrict this process, and all that it will start, for ever.

    Args:
        lockdown: what is to be in force.
        scratch: its temporary directory.

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
        seccomp.install(processes=lockdown.syscalls, network=lockdown.network)


def _enter_domain(lockdown: Lockdown, scratch: str | None) -> None:
    scopes = landlock.Scope.SIGNALS if lockdown.signals else landlock.Scope(0)
    if lockdown.write is None:
        landlock.restrict(scopes=scopes)
        return
    paths = [*ALWAYS_WRITABLE, *lockdown.write]
    if scratch is not None:
        paths.append(scratch)
    landlock.restrict(
        scopes=scopes, denied=landlock.WRITE, granted=[(landlock.WRITE, paths)]
    )
