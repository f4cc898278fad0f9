"""seccomp: system calls that a child and all that it starts cannot make any more.

Theory of operation. The filter is a small program in the kernel's classic BPF that
sees each system call's number and the values of its arguments (never what they point
to), and answers: allowed, or an error number. `clone3` hides its flags behind a
pointer, so it is said not to exist; C libraries then use `clone`, whose flags can be
seen.

A call in another architecture's numbering (32-bit programs, x32) would pass by every
rule, and is denied.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import platform
import socket
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from jobpool.errors import JobpoolError

_SET_MODE_FILTER = 1
_SPEC_ALLOW = 1 << 2
"""Without it, kernels before 5.16 slow every process with a filter down by their
defence against Spectre; this filter is no defence against that."""
_CLONE_PARENT = 0x8000
_CLONE_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, …CGROUP, …UTS, …IPC, …USER, …PID and …NET."""
_PR_SET_CHILD_SUBREAPER = 36
_X32_BIT = 0x40000000
_NUMBER_AT, _ARCH_AT, _ARGUMENT_AT = 0, 4, 16
_SECOND_LOW_AT, _SECOND_HIGH_AT = 24, 28
_THIRD_LOW_AT, _THIRD_HIGH_AT = 32, 36
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_libc = ctypes.CDLL(None, use_errno=True)


class _Machine(NamedTuple):
    """One architecture's name to the kernel's audit, and its numbers of calls."""

    audit: int
    calls: Mapping[str, int]


_NEW_MOUNT_CALLS = {  # of the numbers that all architectures share
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
}
_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(
        0xC000003E,
        {
            "acct": 163,
            "add_key": 248,
            "bpf": 321,
            "chroot": 161,
            "clone": 56,
            "clone3": 435,
            "delete_module": 176,
            "finit_module": 313,
            "init_module": 175,
            "io_uring_setup": 425,
            "kexec_file_load": 320,
            "kexec_load": 246,
            "keyctl": 250,
            "mount": 165,
            "open_by_handle_at": 304,
            "perf_event_open": 298,
            "pidfd_getfd": 438,
            "pivot_root": 155,
            "prctl": 157,
            "prlimit64": 302,
            "ptrace": 101,
            "reboot": 169,
            "request_key": 249,
            "seccomp": 317,
            "setns": 308,
            "socket": 41,
            "swapoff": 168,
            "swapon": 167,
            "syslog": 103,
            "umount2": 166,
            "unshare": 272,
            "userfaultfd": 323,
            **_NEW_MOUNT_CALLS,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            "acct": 89,
            "add_key": 217,
            "bpf": 280,
            "chroot": 51,
            "clone": 220,
            "clone3": 435,
            "delete_module": 106,
            "finit_module": 273,
            "init_module": 105,
            "io_uring_setup": 425,
            "kexec_file_load": 294,
            "kexec_load": 104,
            "keyctl": 219,
            "mount": 40,
            "open_by_handle_at": 265,
            "perf_event_open": 241,
            "pidfd_getfd": 438,
            "pivot_root": 41,
            "prctl": 167,
            "prlimit64": 261,
            "ptrace": 117,
            "reboot": 142,
            "request_key": 218,
            "seccomp": 277,
            "setns": 268,
            "socket": 198,
            "swapoff": 225,
            "swapon": 224,
            "syslog": 116,
            "umount2": 39,
            "unshare": 97,
            "userfaultfd": 282,
            **_NEW_MOUNT_CALLS,
        },
    ),
}
DENIED = (
    "ptrace",
    "bpf",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "pidfd_getfd",
)
"""Never a job's business: EPERM."""
SURFACE = (
    "unshare",
    "setns",
    "chroot",
    "mount",
    "umount2",
    "pivot_root",
    *_NEW_MOUNT_CALLS,
    "open_by_handle_at",
    "add_key",
    "request_key",
    "keyctl",
    "perf_event_open",
    "userfaultfd",
    "syslog",
    "acct",
)
"""Parts of the kernel that hardly a job needs, and that had many holes: EPERM."""
_LOCAL_FAMILIES = (socket.AF_UNIX, socket.AF_NETLINK)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def is_known_machine() -> bool:
    """Say whether this architecture's system calls are known here."""
    return platform.machine() in _MACHINES


def is_available() -> bool:
    """Say whether the kernel takes filters, and we know how to write one."""
    if not is_known_machine():
        return False
    action = ctypes.c_uint32(_ERRNO)
    get_action_avail = 2
    answer: int = _libc.syscall(
        ctypes.c_long(_MACHINES[platform.machine()].calls["seccomp"]),
        ctypes.c_uint(get_action_avail),
        ctypes.c_uint(0),
        ctypes.byref(action),
    )
    return answer == 0


def prepare() -> None:
    """Write every filter that there can be: a child finds it in its copy of us."""
    machine = platform.machine()
    if machine in _MACHINES:
        for processes, network, surface in itertools.product((True, False), repeat=3):
            program(machine, processes=processes, network=network, surface=surface)


@cache
def program(
    machine: str, *, processes: bool, network: bool, surface: bool = True
) -> bytes:
    """Return the filter's program.

    Args:
        machine: as `platform.machine()` says.
        processes: deny what is never a job's business, and leaving the process tree.
        network: False: sockets of this machine only.
        surface: False: nothing of the kernel that few need, namespaces included.
    """
    audit, calls = _MACHINES[machine]
    code = [
        _load(_ARCH_AT),
        *_unless_equal(audit, [_error(errno.EPERM)]),
        _load(_NUMBER_AT),
    ]
    if machine == "x86_64":
        code += [_jump(_JGE, _X32_BIT, 0, 1), _error(errno.EPERM)]
    if processes:
        for name in DENIED:
            code += _if_equal(calls[name], [_error(errno.EPERM)])
        code += _if_equal(calls["clone3"], [_error(errno.ENOSYS)])
        code += _on_argument(
            calls["prctl"],
            _if_equal(_PR_SET_CHILD_SUBREAPER, _unless_adopting()),
        )
        code += _on_argument(
            calls["clone"],
            [_jump(_JSET, _CLONE_PARENT, 0, 1), _error(errno.EPERM)],
        )
        code += _on_argument(calls["prlimit64"], _unless_own_or_reading())
    if not surface:
        for name in SURFACE:
            code += _if_equal(calls[name], [_error(errno.EPERM)])
        code += _on_argument(
            calls["clone"],
            [_jump(_JSET, _CLONE_NAMESPACES, 0, 1), _error(errno.EPERM)],
        )
    if not network:
        local = [line for one in _LOCAL_FAMILIES for line in _if_equal(one, [_allow()])]
        code += _on_argument(calls["socket"], [*local, _error(errno.EACCES)])
    if not network or not surface:
        code += _if_equal(calls["io_uring_setup"], [_error(errno.ENOSYS)])
    return b"".join([*code, _allow()])


def install(*, processes: bool, network: bool, surface: bool = True) -> None:
    """Filter the calling thread, and what it starts from now on.

    Needs no_new_privs, or CAP_SYS_ADMIN.

    Args:
        processes: as for `program`.
        network: as for `program`.
        surface: as for `program`.

    Raises:
        JobpoolError: the kernel refused; nothing is filtered.
    """
    machine = platform.machine()
    code = program(machine, processes=processes, network=network, surface=surface)
    prepared = _Filter(len(code) // _INSTRUCTION.size, code)
    answer = _libc.syscall(
        ctypes.c_long(_MACHINES[machine].calls["seccomp"]),
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(_SPEC_ALLOW),
        ctypes.byref(prepared),
    )
    if answer != 0:
        why = os.strerror(ctypes.get_errno())
        raise JobpoolError(f"the kernel refused the filter of system calls: {why}")


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, value)


def _load(at: int) -> bytes:
    return _instruction(_LD, at)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return _instruction(code, value, if_true, if_false)


def _error(number: int) -> bytes:
    return _instruction(_RET, _ERRNO | number)


def _allow() -> bytes:
    return _instruction(_RET, _ALLOW)


def _unless_adopting() -> list[bytes]:
    """Deny letting one's orphans go.

    To adopt those of one's own descendants is a job's business, as a supervisor in it
    does: all of them stay below its child.
    """
    return [
        _load(_SECOND_LOW_AT),
        _jump(_JEQ, 0, 0, 3),
        _load(_SECOND_HIGH_AT),
        _jump(_JEQ, 0, 0, 1),
        _error(errno.EPERM),
    ]


def _unless_own_or_reading() -> list[bytes]:
    """Deny new limits for a process that is named by its number.

    By such a call a job takes the supervisor's descriptors away, or lets the kernel
    kill a neighbour for its use of the CPU; Landlock does not see it.
    """
    return [
        _jump(_JEQ, 0, 5, 0),  # 0 is the caller
        _load(_THIRD_LOW_AT),
        _jump(_JEQ, 0, 0, 2),
        _load(_THIRD_HIGH_AT),
        _jump(_JEQ, 0, 1, 0),  # no new limits are given: it only reads them
        _error(errno.EPERM),
    ]


def _if_equal(value: int, then: Iterable[bytes]) -> list[bytes]:
    lines = list(then)
    return [_jump(_JEQ, value, 0, len(lines)), *lines]


def _unless_equal(value: int, then: Iterable[bytes]) -> list[bytes]:
    lines = list(then)
    return [_jump(_JEQ, value, len(lines), 0), *lines]


def _on_argument(number: int, then: Iterable[bytes]) -> list[bytes]:
    """Look at the first argument of a call, and at the number again after that."""
    lines = [_load(_ARGUMENT_AT), *then, _load(_NUMBER_AT)]
    return _if_equal(number, lines)
