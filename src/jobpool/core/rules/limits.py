"""Limits of an attempt, and how the effective ones are chosen.

For each limit the first of these that names it wins: ``[kinds.K]`` in the
configuration, the job's own options, the decorator, the pool's default. The
pool's maximum caps the result.
"""

from __future__ import annotations

import msgspec

from jobpool.core.units import show_size

GROWTH_MAX = 16.0
GROWTH_STEPS_MAX = 50
"""After this many every ceiling is reached."""
_AS_SHOWN = 1.01
"""People write a maximum as they were shown it, rounded; the pool caps what is over."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one attempt as one source sets them; None: not set there."""

    timeout_s: float | None = None
    """Hard: the whole process tree is killed."""
    soft_timeout_s: float | None = None
    """`SoftTimeout` is raised in the handler."""
    memory_bytes: int | None = None
    """Most resident memory of the process tree."""
    memory_soft: float | None = None
    """Bytes, or if below 1 a share of the memory limit. Over it `SoftMemory` is raised
    or a line is logged."""
    memory_growth: float | None = None
    """After each out_of_memory the next attempt's memory limit grows by this factor."""
    heartbeat_timeout_s: float | None = None
    """Longest time without a heartbeat; then it is killed as stalled."""


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """The limits in force for one attempt; None: no limit."""

    timeout_s: float
    memory_bytes: int
    memory_growth: float | None = None
    memory_soft_bytes: int | None = None
    memory_soft_raises: bool = False
    """The decorator names a soft limit: the handler is ready for `SoftMemory`."""
    soft_timeout_s: float | None = None
    heartbeat_timeout_s: float | None = None


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's default limits and their maxima."""

    timeout_s: float
    memory_bytes: int
    memory_soft: float | None = None
    soft_timeout_s: float | None = None
    heartbeat_timeout_s: float | None = None
    timeout_max_s: float | None = None
    memory_max_bytes: int | None = None
    memory_growth_max_bytes: int | None = None
    """Where growth ends if there is no memory_max."""


def resolve(
    *,
    configured: Limits,
    job: Limits,
    declared: Limits,
    pool: PoolLimits,
    ran_out: int = 0,
) -> Effective:
    """Choose the limits of one attempt.

    Args:
        configured: from ``[kinds.K]``.
        job: from the job's own options.
        declared: from the decorator.
        pool: the pool's defaults and maxima.
        ran_out: how many of the job's attempts have run out of memory.

    Returns:
        The effective limits. A soft limit that is not below the hard one is dropped:
        the hard one would come first.
    """
    chain = (configured, job, declared)
    timeout_s = _first(pool.timeout_s, *(c.timeout_s for c in chain))
    if pool.timeout_max_s is not None:
        timeout_s = min(timeout_s, pool.timeout_max_s)
    memory = int(_first(pool.memory_bytes, *(c.memory_bytes for c in chain)))
    if pool.memory_max_bytes is not None:
        memory = min(memory, pool.memory_max_bytes)
    growth = _first_or_none(configured.memory_growth, declared.memory_growth)
    if growth is not None and ran_out:
        memory = _grown(memory, growth ** min(ran_out, GROWTH_STEPS_MAX), pool)
    soft = _first_or_none(*(c.soft_timeout_s for c in chain), pool.soft_timeout_s)
    return Effective(
        timeout_s=timeout_s,
        memory_bytes=memory,
        memory_growth=growth,
        memory_soft_bytes=_soft_bytes(
            _first_or_none(*(c.memory_soft for c in chain), pool.memory_soft), memory
        ),
        memory_soft_raises=declared.memory_soft is not None,
        soft_timeout_s=soft if soft is not None and soft < timeout_s else None,
        heartbeat_timeout_s=_first_or_none(
            *(c.heartbeat_timeout_s for c in chain), pool.heartbeat_timeout_s
        ),
    )


def why_not_raised(
    wanted_bytes: int,
    *,
    kind: str,
    now_bytes: int | None,
    pool: str,
    most_bytes: int | None,
    is_fixed: bool,
) -> str:
    """Return why a job is not given a memory limit of its own; "": it can be.

    Args:
        wanted_bytes: the limit.
        kind: the job's.
        now_bytes: the limit that it has; None: it is not known.
        pool: the job's.
        most_bytes: what that allows; None: nobody has said.
        is_fixed: the configuration says the limit of its kind.
    """
    if is_fixed:
        return (
            f'[kinds."{kind}"] of the configuration says its memory limit, and a '
            "job's own does not count beside it: raise it there, and release without "
            "a limit"
        )
    if now_bytes is not None and wanted_bytes <= now_bytes:
        return f"its memory limit is {show_size(now_bytes)}; expected more than that"
    if most_bytes is not None and wanted_bytes > _AS_SHOWN * most_bytes:
        return (
            f"pool {pool} allows at most {show_size(most_bytes)}; expected no more, "
            f'or a higher memory_max in [pools."{pool}"]'
        )
    return ""


def _grown(memory_bytes: int, factor: float, pool: PoolLimits) -> int:
    ceiling = pool.memory_max_bytes or pool.memory_growth_max_bytes or memory_bytes
    return max(memory_bytes, min(int(memory_bytes * factor), ceiling))


def _soft_bytes(soft: float | None, memory_bytes: int) -> int | None:
    if soft is None:
        return None
    soft_bytes = int(soft * memory_bytes if soft < 1 else soft)
    return soft_bytes if soft_bytes < memory_bytes else None


def _first_or_none(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _first(default: float, *values: float | None) -> float:
    found = _first_or_none(*values)
    return default if found is None else found
