"""Which of an application's pools a supervisor serves, and how many slots. Pure.

Several supervisors may share the pools of an application. The pools that one of them
leaves to others are reported, since it may be a mistake. A supervisor that could never
run anything is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import INTERNAL_PREFIX
from jobpool.core.config.layers import nearest
from jobpool.core.config.settings import MemoryAdmission, Settings
from jobpool.core.events.event import Event
from jobpool.core.events.pools import PoolsLeft, PoolUnused, SlotsBeyondMemory
from jobpool.errors import ConfigError

USUAL = frozenset({"cpu", "io"})
"""Started by default, so that one of them without a kind is not reported."""
_NO_KINDS = (
    "it has none at all: the module or file that --app names must import those that "
    "have the handlers"
)


def pool_events(settings: Settings, report: AppReport, at_ms: int) -> Iterator[Event]:
    """Yield an event for each mismatch between a supervisor's pools and the kinds'.

    Also one if the memory budget, by the pools' limits, is less than the slots need.
    """
    used, served = _used(report), {pool.name for pool in settings.pools}
    if not used:
        for pool in sorted(served):
            yield PoolUnused(at_ms=at_ms, pool=pool, hint=_NO_KINDS)
    left = {pool: used[pool] for pool in sorted(used.keys() - served)}
    if left:
        yield PoolsLeft(at_ms=at_ms, pools=left)
    expected = set() if left or not used else USUAL
    for pool in sorted(served - used.keys() - expected) if used else ():
        yield PoolUnused(at_ms=at_ms, pool=pool, hint=nearest(pool, used))
    yield from _beyond_memory(settings, at_ms)


def slots_within(
    settings: Settings, needs_bytes: Mapping[str, int]
) -> tuple[int, int] | None:
    """Return how many of how many slots can be used at once; None: all of them.

    Args:
        settings: have the pools and the memory budget.
        needs_bytes: what a slot of each pool needs.
    """
    budget_bytes = settings.memory_budget_bytes
    if budget_bytes is None:
        return None
    needs = sorted(
        needs_bytes[pool.name] for pool in settings.pools for _ in range(pool.size_max)
    )
    # One job runs whatever it needs, and the smallest leave room for most.
    usable = sum(total <= budget_bytes for total in accumulate(needs))
    return None if usable == len(needs) else (max(usable, 1), len(needs))


def _beyond_memory(settings: Settings, at_ms: int) -> Iterator[Event]:
    limits = {pool.name: pool.limits.memory_bytes for pool in settings.pools}
    found = slots_within(settings, limits)
    if found is None:
        return
    observes = settings.memory_admission is MemoryAdmission.OBSERVED
    yield SlotsBeyondMemory(
        at_ms=at_ms,
        slots=found[1],
        usable=found[0],
        budget_bytes=settings.memory_budget_bytes or 0,
        until="more once attempts of a kind have shown that they use less"
        if observes
        else 'memory_admission = "limits": lower sizes or memory, or raise the budget',
    )


def refuse_without_kinds(settings: Settings, report: AppReport) -> None:
    """Refuse a supervisor none of whose pools has a kind.

    Raises:
        ConfigError: nothing could ever run; names the application's pools.
    """
    used, served = _used(report), [pool.name for pool in settings.pools]
    if not used or used.keys() & {*served}:
        return
    sizes = ",".join(f"{pool}=N" for pool in sorted(used))
    raise ConfigError(
        f"the application has no kind in pool {', '.join(served)}, so nothing "
        f"could run; use --pools {sizes}, or some of these; "
        f"{nearest(served[0], used)}"
    )


def _used(report: AppReport) -> Counter[str]:
    """Count kinds by pool; hooks do not count."""
    return Counter(
        spec.pool
        for spec in report.handlers
        if not spec.kind.startswith(INTERNAL_PREFIX)
    )
