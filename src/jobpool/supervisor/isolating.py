"""Which measures of isolation each pool's children get on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobpool.core import events as ev
from jobpool.core.isolation import Gap, Lockdown, plan
from jobpool.core.settings import PoolSettings, Settings
from jobpool.sandbox.features import lacking


class Isolation:
    """Goes by the kernel as it was found at the start."""

    def __init__(self) -> None:
        self._lacking = lacking()

    def check(self, settings: Settings) -> None:
        """Refuse what was asked for by name and cannot be.

        Raises:
            ConfigError: says what, where, and why.
        """
        for pool in settings.pools:
            plan(pool, self._lacking)

    def lockdown(self, pool: PoolSettings) -> Lockdown:
        """Return what the children of a pool, which was checked, do to themselves."""
        return plan(pool, self._lacking)[0]

    def reductions(self, settings: Settings, at_ms: int) -> Iterator[ev.Event]:
        """Yield an event for each measure that is wanted and not in force."""
        pools: dict[Gap, list[str]] = {}
        for pool in settings.pools:
            for gap in plan(pool, self._lacking)[1]:
                pools.setdefault(gap, []).append(pool.name)
        for gap, names in pools.items():
            facts: dict[str, Any] = {
                "measure": gap.measure.name,
                "stops": gap.measure.stops,
                "why": gap.why,
            }
            yield ev.IsolationReduced(at_ms=at_ms, pools=tuple(names), **facts)
