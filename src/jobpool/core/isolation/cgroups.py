"""What a cgroup (version 2) adds to the `measures`, if one is available. Pure.

It is never required. A control that is not in force is reported with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.config.settings import MIB

PROCESSES_MAX = 1024
"""Processes and threads of one child, unless its pool says otherwise."""
PROCESSES_COUNTED_MAX = 4096
"""The same without a cgroup: they are counted, and a child with more is killed."""
MEMORY_SLACK_BYTES = 32 * MIB
"""Twice what the fastest allocator fills between two samples of the meter."""
MEMORY_SLACK_SHARE = 10
"""A tenth of the limit: the most by which an attempt may be seen over it."""


class Control(StrEnum):
    """A control that the kernel offers for a cgroup."""

    KILL = "cgroup.kill"
    MEMORY = "memory.max"
    PIDS = "pids.max"


class Effect(NamedTuple):
    """What a control prevents, and what it may break."""

    stops: str
    may_break: str


EFFECTS: Mapping[Control, Effect] = {
    Control.KILL: Effect(
        "living on as a daemon after supervisor, zygote and child were killed at once",
        "daemons that a handler starts on purpose",
    ),
    Control.MEMORY: Effect(
        "filling memory that is not resident (tmpfs, page tables, sockets); growing "
        "while the supervisor is late or stopped",
        "handlers that need swap; each new child starts some 10 ms later",
    ),
    Control.PIDS: Effect(
        "starting processes and threads without end",
        "handlers with more than `max_processes` of them",
    ),
}


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The controls in force for one supervisor's children."""

    place: str = ""
    """Directory of its cgroup; "" if it has none."""
    in_force: tuple[Control, ...] = ()
    missing: Mapping[Control, str] = {}
    """Why the others are not in force."""


def memory_max_bytes(limit_bytes: int) -> int:
    """Return the ``memory.max`` of a child whose attempt has a memory limit.

    It is above the limit on purpose. The meter acts first, on resident memory, and
    reports the exact figure and the Python stack. The cgroup also counts tmpfs, sockets
    and page tables; at 10 % more it stops what the meter cannot see, or sees too late.

    Args:
        limit_bytes: the attempt's limit on resident memory.
    """
    return limit_bytes + max(MEMORY_SLACK_BYTES, limit_bytes // MEMORY_SLACK_SHARE)
