"""Which measures of isolation each pool's children get on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobpool.core import events as ev
from jobpool.core.cgroups import Control, Controls, check_processes
from jobpool.core.isolation import Gap, Lockdown, plan
from jobpool.core.settings import PoolSettings, Settings
from jobpool.sandbox import rungroup
from jobpool.sandbox.features import lacking
from jobpool.sandbox.identity import RunDirectory


class Isolation:
    """Goes by the kernel as it was found at the start."""

    def __init__(self) -> None:
        self._lacking = lacking()
        self.controls = Controls()
        """What a cgroup puts in force; nothing before `entered`."""
        self._is_entered = False

    def check(self, settings: Settings) -> None:
        """Refuse what was asked for by name and cannot be.

        Raises:
            ConfigError: says what, where, and why.
        """
        for pool in settings.pools:
            plan(pool, self._lacking)
        if self._is_entered:
            check_processes(settings, self.controls)

    @contextmanager
    def entered(
        self, run: RunDirectory, settings: Settings
    ) -> Iterator[rungroup.RunGroup | None]:
        """Have a cgroup for the run, if there can be one, for as long as this lasts.

        Raises:
            ConfigError: something that was asked for by name cannot be.
        """
        group = None
        try:
            origin, path = rungroup.path_for(run.run_id)
            run.record_cgroup(path)
            group = rungroup.enter(origin, path, os.getpid())
            self.controls = group.controls
        except (rungroup.NoCgroupError, OSError) as exc:
            self.controls = Controls(missing=dict.fromkeys(Control, str(exc)))
        self._is_entered = True
        try:
            self.check(settings)
            yield group
        finally:
            if group is not None:
                group.leave()

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
