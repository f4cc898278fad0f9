"""The application, imported into this process, and the settings that it is run with."""

from __future__ import annotations

import os
import traceback

import msgspec

from jobpool.core.application import reports
from jobpool.core.application.app_report import AppReport
from jobpool.core.application.current import RUN_VARIABLE, enter
from jobpool.core.config.settings import (
    DEFAULT_MEMORY_BYTES,
    DEFAULT_TIMEOUT_S,
    OTHER_MEMORY_BYTES,
    OTHER_TIMEOUT_S,
    PoolSettings,
    Settings,
)
from jobpool.core.rules.limits import PoolLimits
from jobpool.errors import AppError
from jobpool.sandbox.app_loader import Application, load_application
from jobpool.sandbox.child import log_context
from jobpool.sandbox.child.closed_channel import ClosedChannel
from jobpool.sandbox.zygote.source_hash import source_hash


def load(settings: Settings, run_id: str) -> tuple[Application, AppReport]:
    """Import the application into this process, and run its hooks of a child's start.

    From now on this process is, for what it imports and starts, one of jobpool's.

    Args:
        settings: which application.
        run_id: the run that it is loaded for.

    Raises:
        AppError: it does not load; with its traceback.
    """
    os.environ[RUN_VARIABLE] = run_id
    os.chdir(settings.app_directory)
    enter(ClosedChannel("the application is being imported, not run"), None)
    try:
        application = load_application(
            settings.app, settings.app_directory, settings.commands
        )
        report = AppReport(
            handlers=application.handler_specs(),
            schedules=application.declared_schedules(),
            quotas=application.declared_quotas(),
            store=application.named_store(),
            version=source_hash(
                settings.app, settings.app_directory, settings.commands
            ),
        )
        log_context.install()
        application.start_child()
    except (AppError, KeyboardInterrupt):
        raise
    except BaseException as exc:
        text = f"the application could not be loaded: {type(exc).__name__}: {exc}"
        raise AppError(text, traceback.format_exc()) from exc
    enter(ClosedChannel("no attempt is running in this process now"), None)
    return application, report


def unload() -> None:
    """Be no process of jobpool's any more: it starts anew, or ends."""
    os.environ.pop(RUN_VARIABLE, None)
    reports.want(wanted=False)
    enter(None, None)


def with_all_pools(settings: Settings, report: AppReport) -> Settings:
    """Return settings for one job at a time, of whatever pool the application has."""
    named = {pool.name: pool for pool in settings.pools}
    wanted = dict.fromkeys((*named, *(spec.pool for spec in report.handlers)))
    pools = (named.get(name) or _usual(name) for name in wanted)
    return msgspec.structs.replace(
        settings,
        pools=tuple(
            msgspec.structs.replace(pool, size_min=1, size_max=1) for pool in pools
        ),
    )


def _usual(pool: str) -> PoolSettings:
    """Return a pool of which the configuration says nothing."""
    limits = PoolLimits(
        timeout_s=DEFAULT_TIMEOUT_S.get(pool, OTHER_TIMEOUT_S),
        memory_bytes=DEFAULT_MEMORY_BYTES.get(pool, OTHER_MEMORY_BYTES),
    )
    return PoolSettings(name=pool, size_min=1, size_max=1, limits=limits)
