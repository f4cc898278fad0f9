"""What a cgroup (version 2) adds to the measures of `isolation`, where it can be had.

It is never required. What is not in force is said, with the reason, and never claimed.
Pure.
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
"""The same where no cgroup bounds them: they are counted, and then it is killed."""
MEMORY_SLACK_BYTES = 32 * MIB
"""Twice what the fastest allocator fills between two looks of the meter."""
MEMORY_SLACK_SHARE = 10
"""A tenth of the limit: so far over it an attempt may be seen at most."""


class Control(StrEnum):
    """What the kernel does to a cgroup."""

    KILL = "cgroup.kill"
    MEMORY = "memory.max"
    PIDS = "pids.max"


class Effect(NamedTuple):
    """What one of them is good for."""

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
    """What is in force for one supervisor's children."""

    place: str = ""
    """Directory of its cgroup; "": it has none."""
    in_force: tuple[Control, ...] = ()
    missing: Mapping[Control, str] = {}
    """Why the others are not."""


def memory_max_bytes(limit_bytes: int) -> int:
    """Return the ``memory.max`` of a child whose attempt has a memory limit.

    Above the limit on purpose: the meter acts first, on resident memory, with the
    exact figure and the Python stack; a cgroup also counts tmpfs, sockets and page
    tables. What the meter cannot see, or comes too late for, ends at 10 % more.

    Args:
        limit_bytes: the attempt's limit on resident memory.
    """
    return limit_bytes + max(MEMORY_SLACK_BYTES, limit_bytes // MEMORY_SLACK_SHARE)
