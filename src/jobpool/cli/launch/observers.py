"""Who else hears a supervisor's events: metrics, traces, Sentry, if they are wanted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from jobpool.core.clock import SystemClock
from jobpool.core.config.readers import DSN_OF_ENVIRONMENT, dsn
from jobpool.core.config.settings import Settings
from jobpool.core.events.event import Event, Observer
from jobpool.core.events.supervisor import MetricsRefused
from jobpool.errors import ConfigError


@contextmanager
def measured(settings: Settings, log: Observer) -> Iterator[tuple[Observer, ...]]:
    """Serve metrics while the supervisor runs.

    Args:
        settings: the operator's.
        log: is told when the address cannot be had.

    Returns:
        Who must hear the supervisor's events for that.

    Raises:
        ConfigError: metrics are wanted, and their library is not installed.
    """
    if settings.metrics_listen is None:
        yield ()
        return
    try:
        from jobpool.monitoring.metrics.attempts import AttemptMetrics  # noqa: PLC0415 - an extra
        from jobpool.monitoring.metrics.listen import Listener  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError(
            "[metrics] listen needs prometheus-client: pip install 'jobpool[metrics]'; "
            "nothing was started"
        ) from exc
    clock, own = SystemClock(), AttemptMetrics()

    def refused(why: str) -> None:
        log.observe(MetricsRefused(at_ms=clock.utc_ms(), reason=why))

    with Listener(settings.metrics_listen, (own,), refused=refused):
        yield (own,)


@contextmanager
def traced(
    settings: Settings, tell: Callable[[Event], None]
) -> Iterator[tuple[Observer, ...]]:
    """Send the spans of attempts while the supervisor runs.

    Args:
        settings: the operator's.
        tell: takes events about spans that were lost.

    Returns:
        Who must hear the supervisor's events for that.

    Raises:
        ConfigError: spans are wanted, and their library is not installed.
    """
    if settings.traces_otlp is None:
        yield ()
        return
    try:
        from jobpool.monitoring.tracing.export import SpanExport  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigError(
            "[traces] otlp needs OpenTelemetry's SDK and its exporter: pip install "
            f"'jobpool[otel]' ({exc}); nothing was started"
        ) from exc
    with SpanExport(settings.traces_otlp, tell, SystemClock()) as own:
        yield (own,)


@contextmanager
def reported(
    settings: Settings, tell: Callable[[Event], None], *, at_desk: bool = False
) -> Iterator[tuple[Observer, ...]]:
    """Report errors and ticks to Sentry while the supervisor runs.

    Args:
        settings: the operator's.
        tell: takes events about reports that were lost.
        at_desk: this is `jobpool dev`, whose reports are not those of production; a
            variable that is to name the DSN need not be there.

    Returns:
        Who must hear the supervisor's events for that.

    Raises:
        ConfigError: reports are wanted, and there is no client or no DSN for them.
    """
    sentry = settings.sentry
    is_unnamed = sentry is not None and sentry.dsn == DSN_OF_ENVIRONMENT
    if is_unnamed and at_desk and not os.environ.get("SENTRY_DSN"):
        sentry = None
    if sentry is None:
        yield ()
        return
    if sentry.dsn == DSN_OF_ENVIRONMENT:
        where = "[sentry] dsn, the variable SENTRY_DSN"
        sentry = msgspec.structs.replace(
            sentry, dsn=dsn(os.environ.get("SENTRY_DSN", ""), where)
        )
    try:
        from jobpool.monitoring.sentry.export import SentryExport  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigError(
            "[sentry] dsn needs Sentry's SDK: pip install 'jobpool[sentry]' "
            f"({exc}); nothing was started"
        ) from exc
    directory, clock = settings.app_directory, SystemClock()
    environment = "development" if at_desk else None
    with SentryExport(sentry, directory, tell, clock, environment) as own:
        yield (own,)
