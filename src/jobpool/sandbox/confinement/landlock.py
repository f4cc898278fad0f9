"""Landlock: a process gives up rights for itself and all that it starts.

Theory of operation. A ruleset names kinds of access that are denied unless a rule
grants them below some path, and scopes out of which nothing may reach. Restricting
puts the calling thread, and every process that it makes later, into a new domain for
ever: so it is done while the child has one thread. A domain may be entered without
any privilege. A process in one cannot trace, read the memory of, or (scoped) signal
a process outside, even as root; processes of the same domain are as before.

Source: https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Sequence
from enum import IntFlag

from jobpool.errors import JobpoolError
from jobpool.sandbox.system.libc import libc

ABI_SCOPES = 6
"""Linux 6.12: the first version that can keep signals in."""
ABI_TRUNCATE = 3
"""Linux 6.2: the first version that keeps files from being truncated."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1


class Access(IntFlag):
    """Kinds of access to files; LANDLOCK_ACCESS_FS_…."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14


class Scope(IntFlag):
    """What must not reach out of the domain; LANDLOCK_SCOPE_…."""

    ABSTRACT_SOCKETS = 1 << 0
    SIGNALS = 1 << 1


NOTHING = Access(0)
READ = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
WRITE = ~READ & Access((1 << 15) - 1)
_OF_A_FILE = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE
"""What can be granted on something that is no directory."""


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # packed; Python 3.14 wants it said
    _fields_ = (
        ("allowed_access", ctypes.c_uint64),
        ("parent_fd", ctypes.c_int32),
    )


def abi() -> int:
    """Return the kernel's version of Landlock; 0: it has none, or it is off."""
    version: int = libc.syscall(
        ctypes.c_long(_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint32(_VERSION_FLAG),
    )
    return max(0, version)


def restrict(
    *,
    scopes: Scope,
    denied: Access = NOTHING,
    granted: Sequence[tuple[Access, Sequence[str]]] = (),
) -> None:
    """Restrict the calling thread, and what it starts from now on.

    Needs no_new_privs, or CAP_SYS_ADMIN.

    Args:
        scopes: what must not reach out.
        denied: kinds of access that are denied.
        granted: and yet granted at or below these paths; what does not exist is left
            out.

    Raises:
        JobpoolError: the kernel cannot do it; nothing is restricted.
    """
    attr = _RulesetAttr(handled_access_fs=denied, scoped=scopes)
    ruleset = _checked(
        libc.syscall(
            ctypes.c_long(_CREATE_RULESET),
            ctypes.byref(attr),
            ctypes.c_size_t(ctypes.sizeof(attr)),
            ctypes.c_uint32(0),
        ),
        "create a ruleset",
    )
    try:
        for access, paths in granted:
            for path in paths:
                _grant(ruleset, access & denied, path)
        _checked(
            libc.syscall(
                ctypes.c_long(_RESTRICT_SELF),
                ctypes.c_int(ruleset),
                ctypes.c_uint32(0),
            ),
            "restrict this process",
        )
    finally:
        os.close(ruleset)


def _grant(ruleset: int, access: Access, path: str) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_A_FILE
        attr = _PathBeneathAttr(allowed_access=access, parent_fd=fd)
        _checked(
            libc.syscall(
                ctypes.c_long(_ADD_RULE),
                ctypes.c_int(ruleset),
                ctypes.c_int(_PATH_BENEATH),
                ctypes.byref(attr),
                ctypes.c_uint32(0),
            ),
            f"grant access to {path}",
        )
    finally:
        os.close(fd)


def _checked(answer: int, what: str) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise JobpoolError(f"Landlock could not {what}: {os.strerror(code)}")
    return answer
