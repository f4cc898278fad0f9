"""Gives a child a cgroup of its own, where its run has one to divide."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core import events as ev
from jobpool.core.settings import PoolSettings, SandboxLevel
from jobpool.sandbox.process import ChildProcess
from jobpool.sandbox.rungroup import RunGroup
from jobpool.supervisor import notices


def enclose(
    process: ChildProcess, pool: PoolSettings, group: RunGroup | None, at_ms: int
) -> Iterator[ev.Event]:
    """Make the child's cgroup; yield what is to be said when that fails.

    The child waits for nothing then: an operator who asked for the bound is told each
    time, and the other measures hold.
    """
    if group is None or not group.is_per_child or pool.sandbox is SandboxLevel.OFF:
        return
    name = f"{process.slot_name}.{process.pid}"
    try:
        process.group = group.child(name, pool.limits.memory_bytes, pool.max_processes)
    except OSError as exc:
        yield notices.not_enclosed(at_ms, pool.name, exc)
