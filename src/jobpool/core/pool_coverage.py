"""Which pools an application's kinds are in, and which a supervisor serves. Pure.

Several supervisors may share the pools of an application. What one of them leaves to
others is said, because it may be a slip as well; a supervisor that could never run
anything is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jobpool.core.application.handler_spec import INTERNAL_PREFIX, AppReport
from jobpool.core.config.layers import nearest
from jobpool.core.config.settings import Settings
from jobpool.core.events import Event, PoolsLeft, PoolUnused
from jobpool.errors import ConfigError

USUAL = frozenset({"cpu", "io"})
"""Everybody starts these: that one of them has no kind is nothing strange."""


def pool_events(settings: Settings, report: AppReport, at_ms: int) -> Iterator[Event]:
    """Yield what people should know of a supervisor's pools and an application's."""
    used, served = _used(report), {pool.name for pool in settings.pools}
    left = {pool: used[pool] for pool in sorted(used.keys() - served)}
    if left:
        yield PoolsLeft(at_ms=at_ms, pools=left)
    expected = set() if left or not used else USUAL
    for pool in sorted(served - used.keys() - expected) if used else ():
        yield PoolUnused(at_ms=at_ms, pool=pool, hint=nearest(pool, used))


def refuse_without_kinds(settings: Settings, report: AppReport) -> None:
    """Refuse pools in which the application has no kind at all.

    Raises:
        ConfigError: nothing could ever run; says which pools there are.
    """
    used, served = _used(report), [pool.name for pool in settings.pools]
    if not used or used.keys() & {*served}:
        return
    sizes = ",".join(f"{pool}=N" for pool in sorted(used))
    raise ConfigError(
        f"the application has no kind in pool {', '.join(served)}, so nothing "
        f"could run; use --pools {sizes}, or only some of them; "
        f"{nearest(served[0], used)}"
    )


def _used(report: AppReport) -> Counter[str]:
    """Count kinds by pool; hooks are none."""
    return Counter(
        spec.pool
        for spec in report.handlers
        if not spec.kind.startswith(INTERNAL_PREFIX)
    )
