"""Which isolation each pool's children get on this machine, and each child's cgroup."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from jobpool.core.config.settings import PoolSettings, SandboxLevel, Settings
from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import IsolationReduced
from jobpool.core.isolation.cgroups import Control, Controls
from jobpool.core.isolation.measures import Enclosure, Feature, Gap, Lockdown, plan
from jobpool.errors import ConfigError
from jobpool.sandbox.cgroups import run_group
from jobpool.sandbox.confinement.features import lacking
from jobpool.sandbox.confinement.probing import closed_paths
from jobpool.sandbox.handles.child import ChildProcess
from jobpool.sandbox.runs.run_directory import RunDirectory
from jobpool.sandbox.zygote import early
from jobpool.supervisor.machine.state import notices


class Isolation:
    """The measures that this kernel allows, as found at the start.

    Those that only the strict level needs are tried when a pool first asks for it.
    """

    def __init__(self) -> None:
        self._lacking = lacking(enclosures=False)
        self.controls = Controls()
        """What a cgroup enforces; nothing before `entered`."""

    def check(self, settings: Settings) -> None:
        """Refuse measures that the settings require and this machine lacks.

        Raises:
            ConfigError: says which, where, and why.
        """
        for pool in settings.pools:
            lockdown = self._plan(pool)[0]
            if lockdown.enclosure is Enclosure.OWN_USER:
                _refuse_closed(pool, lockdown, settings.app_directory)

    @contextmanager
    def entered(self, run: RunDirectory) -> Iterator[run_group.RunGroup | None]:
        """Make a cgroup for the run, if that is possible; remove it at the end."""
        group = None
        try:
            origin, path = run_group.path_for(run.run_id)
            run.record_cgroup(path)
            group = run_group.enter(origin, path, os.getpid(), zygotes=early.waiting())
            self.controls = group.controls
        except (run_group.NoCgroupError, OSError) as exc:
            self.controls = Controls(missing=dict.fromkeys(Control, str(exc)))
        try:
            yield group
        finally:
            if group is not None:
                group.leave()

    def lockdown(self, pool: PoolSettings) -> Lockdown:
        """Return the confinement of a pool's children; the pool must be checked."""
        return self._plan(pool)[0]

    def reductions(self, settings: Settings, at_ms: int) -> Iterator[Event]:
        """Yield an event for each measure that is wanted but not in force."""
        pools: dict[Gap, list[str]] = {}
        for pool in settings.pools:
            for gap in self._plan(pool)[1]:
                pools.setdefault(gap, []).append(pool.name)
        for gap, names in pools.items():
            facts: dict[str, Any] = {
                "measure": gap.measure.name,
                "stops": gap.measure.stops,
                "why": gap.why,
            }
            yield IsolationReduced(at_ms=at_ms, pools=tuple(names), **facts)

    def _plan(self, pool: PoolSettings) -> tuple[Lockdown, tuple[Gap, ...]]:
        is_strict = pool.sandbox is SandboxLevel.STRICT
        return plan(pool, self._lacking_to_enclose if is_strict else self._lacking)

    @cached_property
    def _lacking_to_enclose(self) -> Mapping[Feature, str]:
        return lacking()


def enclose(
    process: ChildProcess,
    pool: PoolSettings,
    group: run_group.RunGroup | None,
    at_ms: int,
) -> Iterator[Event]:
    """Make the child's cgroup; yield an event if that fails.

    The child starts all the same: the operator is notified each time, and the other
    measures hold.
    """
    if group is None or not group.is_per_child or pool.sandbox is SandboxLevel.OFF:
        return
    name = f"{process.slot_name}.{process.pid}"
    try:
        process.group = group.child(name, pool.limits.memory_bytes, pool.max_processes)
    except OSError as exc:
        yield notices.not_enclosed(at_ms, pool.name, exc)


def _refuse_closed(pool: PoolSettings, lockdown: Lockdown, directory: str) -> None:
    """Refuse paths that children could not use under users of their own."""

    def absolute(paths: Sequence[str]) -> list[str]:
        return [posixpath.normpath(posixpath.join(directory, one)) for one in paths]

    read, write = absolute(lockdown.read), absolute(lockdown.write or ())
    if closed := closed_paths(directory, read, write):
        raise ConfigError(
            f"pool {pool.name}: its children are users of their own (sandbox = strict, "
            f"as root), who cannot use {', '.join(closed)}: make what is missing, open "
            "what they are to read to others (chmod o+rX), and where they are to write "
            "(chmod 1777), or run jobpool as another user than root"
        )
