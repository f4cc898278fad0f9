"""Landlock: a process gives up rights for itself and everything that it starts.

Theory of operation. A ruleset names kinds of access that are denied unless a rule
grants them below some path, and scopes: actions that may not reach outside the domain.
Restricting moves the calling thread, and every process that it starts later, into a new
domain for good, so it is done while the child has a single thread. Entering a domain
takes no privilege. A process in a domain cannot trace a process outside, read its
memory or (if signals are scoped) signal it, even as root. Between processes of the same
domain nothing changes.

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
"""Linux 6.12: the first version that can stop signals from leaving the domain."""
ABI_TRUNCATE = 3
"""Linux 6.2: the first version that can deny truncating files."""
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
    """What must not reach outside the domain; LANDLOCK_SCOPE_…."""

    ABSTRACT_SOCKETS = 1 << 0
    SIGNALS = 1 << 1


NOTHING = Access(0)
READ = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
WRITE = ~READ & Access((1 << 15) - 1)
_OF_A_FILE = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE
"""What can be granted on something other than a directory."""


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # packed; Python 3.14 requires it to be explicit
    _fields_ = (
        ("allowed_access", ctypes.c_uint64),
        ("parent_fd", ctypes.c_int32),
    )


def abi() -> int:
    """Return the kernel's Landlock ABI version; 0 if Landlock is absent or off."""
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
    """Restrict the calling thread and everything that it starts from now on.

    Needs no_new_privs, or CAP_SYS_ADMIN.

    Args:
        scopes: what must not reach outside.
        denied: kinds of access that are denied.
        granted: exceptions, granted at or below these paths. Paths that do not exist
            are skipped.

    Raises:
        JobpoolError: the kernel refused; nothing was restricted.
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
