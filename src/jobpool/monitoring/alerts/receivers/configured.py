"""The receivers that a configuration names."""

from __future__ import annotations

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.config.settings import AlertSettings
from jobpool.monitoring.alerts.receivers.command import Command
from jobpool.monitoring.alerts.receivers.receiver import Receiver
from jobpool.monitoring.alerts.receivers.webhook import Webhook


def receivers_of(
    settings: AlertSettings, clock: Clock | None = None
) -> dict[str, Receiver]:
    """Return them by name.

    Args:
        settings: the operator's.
        clock: for what is signed.
    """
    clock = clock or SystemClock()
    found: dict[str, Receiver] = {}
    if settings.webhook is not None:
        found["webhook"] = Webhook(
            settings.webhook,
            secret_file=settings.secret_file,
            allow_private=settings.allow_private,
            now_s=lambda: clock.utc_ms() / 1000,
        )
    if settings.command is not None:
        found["command"] = Command(settings.command)
    return found
