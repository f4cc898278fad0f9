"""Numbers of the system calls that `seccomp` filters, by architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Machine(NamedTuple):
    """An architecture's AUDIT_ARCH_… value and its system call numbers."""

    audit: int
    calls: Mapping[str, int]


NEW_MOUNT_CALLS = {  # numbers that all architectures share
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
}
MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(
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
            "ioprio_set": 251,
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
            "sched_setaffinity": 203,
            "sched_setattr": 314,
            "sched_setparam": 142,
            "sched_setscheduler": 144,
            "seccomp": 317,
            "setns": 308,
            "setpriority": 141,
            "socket": 41,
            "swapoff": 168,
            "swapon": 167,
            "syslog": 103,
            "umount2": 166,
            "unshare": 272,
            "userfaultfd": 323,
            **NEW_MOUNT_CALLS,
        },
    ),
    "aarch64": Machine(
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
            "ioprio_set": 30,
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
            "sched_setaffinity": 122,
            "sched_setattr": 274,
            "sched_setparam": 118,
            "sched_setscheduler": 119,
            "seccomp": 277,
            "setns": 268,
            "setpriority": 140,
            "socket": 198,
            "swapoff": 225,
            "swapon": 224,
            "syslog": 116,
            "umount2": 39,
            "unshare": 97,
            "userfaultfd": 282,
            **NEW_MOUNT_CALLS,
        },
    ),
}
