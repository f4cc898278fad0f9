"""Limits of an attempt, and how the effective one is chosen.

For each limit the first of these that names it wins: ``[kinds.K]`` in the
configuration, the job's own options, the decorator, the pool's default. The
pool's maximum caps whatever won.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one attempt; None: not said here."""

    timeout_s: float | None = None
    """Hard: the whole process tree is killed."""
    soft_timeout_s: float | None = None
    """`SoftTimeout` is raised in the handler."""
    memory_bytes: int | None = None
    """Resident memory of the process tree, at most."""
    heartbeat_timeout_s: float | None = None
    """Killed as stalled after so long without a heartbeat."""


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """The limits in force for one attempt. None: without limit."""

    timeout_s: float
    memory_bytes: int
    soft_timeout_s: float | None = None
    heartbeat_timeout_s: float | None = None


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's defaults and maxima."""

    timeout_s: float
    memory_bytes: int
    soft_timeout_s: float | None = None
    heartbeat_timeout_s: float | None = None
    timeout_max_s: float | None = None
    memory_max_bytes: int | None = None


def resolve(
    *, configured: Limits, job: Limits, declared: Limits, pool: PoolLimits
) -> Effective:
    """Choose the limits of one attempt.

    Args:
        configured: what ``[kinds.K]`` says.
        job: what the job was enqueued with.
        declared: what the decorator says.
        pool: the pool's defaults and maxima.

    Returns:
        The effective limits; a soft timeout that is not below the hard one is
        dropped, because the hard one comes first.
    """
    chain = (configured, job, declared)
    timeout_s = _first(pool.timeout_s, *(c.timeout_s for c in chain))
    if pool.timeout_max_s is not None:
        timeout_s = min(timeout_s, pool.timeout_max_s)
    memory = int(_first(pool.memory_bytes, *(c.memory_bytes for c in chain)))
    if pool.memory_max_bytes is not None:
        memory = min(memory, pool.memory_max_bytes)
    soft = _first_or_none(*(c.soft_timeout_s for c in chain), pool.soft_timeout_s)
    return Effective(
        timeout_s=timeout_s,
        memory_bytes=memory,
        soft_timeout_s=soft if soft is not None and soft < timeout_s else None,
        heartbeat_timeout_s=_first_or_none(
            *(c.heartbeat_timeout_s for c in chain), pool.heartbeat_timeout_s
        ),
    )


def _first_or_none(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _first(default: float, *values: float | None) -> float:
    found = _first_or_none(*values)
    return default if found is None else found
