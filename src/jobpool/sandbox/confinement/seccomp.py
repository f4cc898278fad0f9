"""seccomp: system calls that a child and everything it starts can no longer make.

Theory of operation. The filter is a small classic BPF program in the kernel. It sees
the number of each system call and the values of its arguments, never the memory that
they point to, and returns "allow" or an errno. `clone3` passes its flags through a
pointer, so it fails with ENOSYS; C libraries then fall back to `clone`, whose flags the
filter can see.

A call that uses another architecture's numbers (32-bit programs, x32) would match none
of the rules, so all such calls are denied.

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
from collections.abc import Collection, Iterable, Mapping
from functools import cache

from jobpool.errors import JobpoolError
from jobpool.sandbox.confinement.syscall_numbers import MACHINES, NEW_MOUNT_CALLS
from jobpool.sandbox.system.libc import libc

_SET_MODE_FILTER = 1
_SPEC_ALLOW = 1 << 2
"""SECCOMP_FILTER_FLAG_SPEC_ALLOW. Without it, kernels before 5.16 turn on Spectre
mitigations that slow every filtered process, and this filter does not rely on them."""
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
"""System calls that no job needs: EPERM."""
SURFACE = (
    "unshare",
    "setns",
    "chroot",
    "mount",
    "umount2",
    "pivot_root",
    *NEW_MOUNT_CALLS,
    "open_by_handle_at",
    "add_key",
    "request_key",
    "keyctl",
    "perf_event_open",
    "userfaultfd",
    "syslog",
    "acct",
)
"""Kernel interfaces that few jobs need and that have had many bugs: EPERM."""
SCHEDULING = ("sched_setscheduler", "sched_setparam", "sched_setattr")
"""System calls by which a process can slow another down."""
_OF_A_USER = {"setpriority": 2, "ioprio_set": 3}
"""Likewise; the value of the first argument that means all processes of a user."""
_SPARED_MAX = 100
"""The offset of a jump is 8 bits; more would not fit."""
_LOCAL_FAMILIES = (socket.AF_UNIX, socket.AF_NETLINK)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def is_known_machine() -> bool:
    """Say whether we know the system call numbers of this architecture."""
    return platform.machine() in MACHINES


def is_available() -> bool:
    """Say whether the kernel accepts filters and we can write one for this machine."""
    if not is_known_machine():
        return False
    action = ctypes.c_uint32(_ERRNO)
    get_action_avail = 2
    answer: int = libc.syscall(
        ctypes.c_long(MACHINES[platform.machine()].calls["seccomp"]),
        ctypes.c_uint(get_action_avail),
        ctypes.c_uint(0),
        ctypes.byref(action),
    )
    return answer == 0


def prepare() -> None:
    """Build every possible filter before a fork, so that children inherit them."""
    machine = platform.machine()
    if machine in MACHINES:
        for processes, network, surface in itertools.product((True, False), repeat=3):
            _program(machine, processes=processes, network=network, surface=surface)


def program(
    machine: str,
    *,
    processes: bool,
    network: bool,
    surface: bool = True,
    pid: int = 0,
    spared: Collection[int] = (),
) -> bytes:
    """Return the filter's program.

    Args:
        machine: as `platform.machine()` says.
        processes: as for `_program`.
        network: as there.
        surface: as there.
        pid: of the process that the filter is for, which may name itself by its pid.
        spared: ids of processes and threads whose CPU affinity it must not set.
    """
    own = _scheduling(MACHINES[machine].calls, pid, spared) if processes else b""
    common = _program(machine, processes=processes, network=network, surface=surface)
    return common + own + _allow()


@cache
def _program(machine: str, *, processes: bool, network: bool, surface: bool) -> bytes:
    """Return the part of the program that all children share.

    Args:
        machine: as `platform.machine()` says.
        processes: deny what no job needs, and leaving the process tree.
        network: whether sockets that reach other machines are allowed.
        surface: whether rarely needed kernel interfaces, namespaces among them, are
            allowed.
    """
    audit, calls = MACHINES[machine]
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
    return b"".join(code)


def _scheduling(calls: Mapping[str, int], pid: int, spared: Collection[int]) -> bytes:
    """Deny calls that reduce another process's share of the CPU or the disk.

    The kernel allows them on any process of the same user. A filter knows only the ids
    with which it is built, not those of threads that start later. Libraries set the CPU
    affinity of their own threads by id, so `sched_setaffinity` is allowed on everything
    but the spared ids. They make all the other calls on the calling thread, whose id is
    given as 0, so those are allowed only on 0 and the process's own pid.
    """
    own = [_error(errno.EPERM)]
    for one in (0, pid):
        own = [_jump(_JEQ, one, len(own), 0), *own]
    code = [line for name in SCHEDULING for line in _on_argument(calls[name], own)]
    for name, of_a_user in _OF_A_USER.items():
        of_all = _if_equal(of_a_user, [_error(errno.EPERM)])
        code += _on_argument(calls[name], [*of_all, _load(_SECOND_LOW_AT), *own])
    first = sorted(spared)[:_SPARED_MAX]
    others = [line for one in first for line in _if_equal(one, [_error(errno.EPERM)])]
    code += _on_argument(calls["sched_setaffinity"], others)
    return b"".join(code)


def install(
    *,
    processes: bool,
    network: bool,
    surface: bool = True,
    spared: Collection[int] = (),
) -> None:
    """Filter the calling thread and everything that it starts from now on.

    Needs no_new_privs, or CAP_SYS_ADMIN.

    Args:
        processes: as for `program`.
        network: as for `program`.
        surface: as for `program`.
        spared: as for `program`.

    Raises:
        JobpoolError: the kernel refused; nothing is filtered.
    """
    machine = platform.machine()
    code = program(
        machine,
        processes=processes,
        network=network,
        surface=surface,
        pid=os.getpid(),
        spared=spared,
    )
    prepared = _Filter(len(code) // _INSTRUCTION.size, code)
    answer = libc.syscall(
        ctypes.c_long(MACHINES[machine].calls["seccomp"]),
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
    """Deny clearing the subreaper flag, by which orphans would leave the process tree.

    Setting it is allowed, as a supervisor started inside a job does: its orphaned
    descendants then stay below the child.
    """
    return [
        _load(_SECOND_LOW_AT),
        _jump(_JEQ, 0, 0, 3),
        _load(_SECOND_HIGH_AT),
        _jump(_JEQ, 0, 0, 1),
        _error(errno.EPERM),
    ]


def _unless_own_or_reading() -> list[bytes]:
    """Deny setting limits of a process named by its pid.

    With such a call a job could take away the supervisor's descriptors, or have the
    kernel kill another child for its use of the CPU. Landlock does not cover it.
    """
    return [
        _jump(_JEQ, 0, 5, 0),  # 0 is the caller
        _load(_THIRD_LOW_AT),
        _jump(_JEQ, 0, 0, 2),
        _load(_THIRD_HIGH_AT),
        _jump(_JEQ, 0, 1, 0),  # no new limits: it only reads them
        _error(errno.EPERM),
    ]


def _if_equal(value: int, then: Iterable[bytes]) -> list[bytes]:
    lines = list(then)
    return [_jump(_JEQ, value, 0, len(lines)), *lines]


def _unless_equal(value: int, then: Iterable[bytes]) -> list[bytes]:
    lines = list(then)
    return [_jump(_JEQ, value, len(lines), 0), *lines]


def _on_argument(number: int, then: Iterable[bytes]) -> list[bytes]:
    """Apply rules to a call's first argument, then load the number again."""
    lines = [_load(_ARGUMENT_AT), *then, _load(_NUMBER_AT)]
    return _if_equal(number, lines)
