"""A supervisor's own metrics, if the configuration asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import Settings
from jobpool.core.events.event import Observer
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
