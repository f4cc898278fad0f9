"""The application in the zygotes: loaded, lost, reloaded.

Theory of operation. Before any job has run, an application that does not load ends the
start; a zygote killed by SIGKILL does not. Later, a lost zygote is started again, less
and less often, while its children work on. A reload starts a second zygote beside each
pool's first. Once it has loaded, the pool's children are replaced one by one as they
become idle; if it cannot load, everything stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jobpool.core.application.app_report import AppReport
from jobpool.core.config.kinds import refuse_unknown_kinds
from jobpool.core.config.settings import Settings
from jobpool.core.config.store_url import without_password
from jobpool.core.events.event import Event
from jobpool.core.events.pools import PoolReloaded, ZygoteFailed
from jobpool.core.events.supervisor import Alarm
from jobpool.core.pool_coverage import pool_events
from jobpool.errors import AppError, ConfigError, JobpoolError
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.idle import IdleChildren
from jobpool.supervisor.machine.pools.scaling import Scaling
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import SlotState
from jobpool.supervisor.machine.state.step import Step

RETRY_FIRST_S = 0.1
RETRY_LAST_S = 30.0
KILLED_MAX = 5
"""A start whose zygotes are killed more often than this, in a row, fails as well."""


class Loading:
    """The zygotes, as the machine sees them.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        settings: the operator's.
        scaling: fills a pool once its zygote is up.
        idle: lets idle children go.
        on_registry: called with the kinds once all zygotes are up, and again whenever
            one has reloaded the application.
    """

    def __init__(
        self,
        step: Step,
        pools: dict[str, Pool],
        settings: Settings,
        *,
        scaling: Scaling,
        idle: IdleChildren,
        on_registry: Callable[[Registry], None],
    ) -> None:
        self._step = step
        self._pools = pools
        self._settings = settings
        self._scaling = scaling
        self._idle = idle
        self._on_registry = on_registry
        self._complete = False
        """All zygotes were up at once: the start is over."""
        self._reported: list[Event] = []
        """The last events about pools, without their times."""
        self._published: tuple[str, ...] = ()

    def published(self, event: inp.KindsPublished) -> None:
        """Note kinds that other supervisors have, if not this one."""
        self._published = event.kinds

    def loaded(self, event: inp.ZygoteLoaded) -> None:
        """A zygote has loaded the application."""
        pool = self._pools[event.pool]
        before = self._step.registry.names if self._step.registry else ()
        try:
            refuse_unknown_kinds(
                self._settings, event.report, {*before, *self._published}
            )
            registry = Registry(self._settings, event.report)
        except ConfigError as exc:
            if event.reloading:
                self._step.out.append(cmd.DropZygote(pool.name))
                self._not_reloaded(pool, exc)
            else:
                self._refused(pool, exc)
            return
        self._step.registry = registry
        if event.reloading:
            self._step.out.append(cmd.TakeOver(pool.name))
        if event.reloading or pool.is_reloading:  # or one was killed meanwhile
            self._renew(pool)
        pool.zygote_up = True
        pool.app_version = registry.app_version
        pool.own_import = event.own_import
        pool.zygote_failures = 0
        pool.zygote_retry_s = None
        self._scaling.fill(pool)
        if self._complete or all(p.zygote_up for p in self._pools.values()):
            if event.reloading or not self._complete:
                self._report_pools(event.report)
            self._complete = True
            self._on_registry(registry)

    def _report_pools(self, report: AppReport) -> None:
        """Report once which pools of the application are not served, and the like."""
        step = self._step
        events = list(pool_events(self._settings, report, step.now_ms))
        timeless = [msgspec.structs.replace(event, at_ms=0) for event in events]
        if timeless != self._reported:
            self._reported = timeless
            step.report(events)

    def lost(self, event: inp.ZygoteLost) -> None:
        """A zygote is gone, or could not load the application."""
        pool = self._pools[event.pool]
        error = AppError(event.message, event.traceback)
        if event.reloading:
            self._not_reloaded(pool, error)
            return
        pool.zygote_up = False
        self._refused(pool, error, killed=event.killed)

    def reload(self, event: inp.Reload) -> None:
        """Reload the application, under new settings."""
        if self._step.ending or not self._complete:
            return
        self._settings = event.settings
        for name, pool in self._pools.items():
            pool.is_reloading = True
            self._step.out.append(cmd.StartZygote(name))

    def retry(self, pool: Pool) -> None:
        """Start a lost zygote again when its time has come."""
        if pool.zygote_retry_s is None:
            return
        if pool.zygote_retry_s > self._step.now_s:
            self._step.wake_at(pool.zygote_retry_s)
            return
        pool.zygote_retry_s = None
        self._step.out.append(cmd.StartZygote(pool.name))

    def _not_reloaded(self, pool: Pool, error: JobpoolError) -> None:
        pool.is_reloading = True  # still: whatever serves it next is newer
        text = f"pool {pool.name} was not reloaded and goes on as it was: {error}"
        self._step.report(Alarm(at_ms=self._step.now_ms, text=text))

    def _renew(self, pool: Pool) -> None:
        """A newer zygote serves: replace the former one's children."""
        pool.is_reloading = False
        for settings in self._settings.pools:
            if settings.name == pool.name:
                pool.settings = settings
        self._step.report(PoolReloaded(at_ms=self._step.now_ms, pool=pool.name))
        size = max(pool.settings.size_min, min(pool.size, pool.settings.size_max))
        for slot in pool.slots:
            slot.worn = slot.state is not SlotState.EMPTY
            if slot.state is SlotState.IDLE:
                self._idle.retire(slot)
        if size != pool.size:
            self._scaling.resize(pool, size, "the settings were reloaded")

    def _refused(
        self, pool: Pool, error: JobpoolError, *, killed: bool = False
    ) -> None:
        """End a start that the application prevents; else try again later."""
        step = self._step
        if step.ending:
            return
        is_worth_a_retry = killed and pool.zygote_failures < KILLED_MAX
        if not self._complete and not is_worth_a_retry:
            step.ending = True
            step.out.append(cmd.Finish(error=error))
            return
        pool.zygote_failures += 1
        pause_s = RETRY_FIRST_S * 2 ** min(pool.zygote_failures - 1, 10)
        pause_s = min(pause_s, RETRY_LAST_S)
        pool.zygote_retry_s = step.now_s + pause_s
        step.wake_at(pool.zygote_retry_s)
        step.report(
            ZygoteFailed(
                at_ms=step.now_ms,
                pool=pool.name,
                reason=str(error),
                again_in_s=pause_s,
            )
        )


_OF_THE_START = {
    "alerts": "[alerts]",
    "metrics_listen": "[metrics] listen",
    "traces_otlp": "[traces] otlp",
    "sentry": "[sentry]",
}
"""What those use who are beside a supervisor from its start on, by field."""


def settings_to_reload(old: Settings, reread: Callable[[], Settings]) -> Settings:
    """Read the settings again.

    Raises:
        ConfigError: they are wrong, or need a restart; the old ones stay in force.
    """
    new = reread()
    if problem := reload_problem(old, new):
        raise ConfigError(f"{problem}; fix it, or restart")
    return new


def await_restart(first: Settings, new: Settings) -> tuple[str, ...]:
    """Return which new settings no reload takes: whoever uses them began with others.

    Args:
        first: those of the start.
        new: those that were just read.
    """
    return tuple(
        name
        for field, name in _OF_THE_START.items()
        if getattr(first, field) != getattr(new, field)
    )


def reload_problem(old: Settings, new: Settings) -> str | None:
    """Return why new settings need a restart; None: they do not."""
    if old.store != new.store:
        return (
            f"the store changed from {without_password(old.store)} to "
            f"{without_password(new.store)}"
        )
    before = {pool.name: pool for pool in old.pools}
    after = {pool.name: pool for pool in new.pools}
    if before.keys() != after.keys():
        names, others = ", ".join(before), ", ".join(after)
        return f"the pools changed from {names} to {others}"
    for name, pool in after.items():
        if pool.size_max > before[name].size_max:
            return (
                f"pool {name} would grow to {pool.size_max}, beyond the "
                f"{before[name].size_max} slots that it was started with"
            )
        if (pool.recycle_jobs == 1) != (before[name].recycle_jobs == 1):
            return f"pool {name} would change between fresh and reused children"
    return None
