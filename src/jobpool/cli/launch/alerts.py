"""Watching the queue from a command's process, if the configuration asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobpool.core.config.load import without_password
from jobpool.core.config.settings import AlertSettings, ClientSettings
from jobpool.core.events.event import Event
from jobpool.store.protocol import Store


@contextmanager
def watched(
    settings: ClientSettings,
    alerts: AlertSettings | None,
    observe: Callable[[Event], None],
    *,
    first_s: float = 0.0,
) -> Iterator[None]:
    """Watch meanwhile, in turn with all others who do; without `[alerts]`: do not.

    Args:
        settings: which store.
        alerts: the rules, and who is told.
        observe: hears what is found here; from another thread.
        first_s: begin so much later: a supervisor makes the store first.
    """
    if alerts is None:
        yield
        return
    from jobpool.monitoring.alerts.receivers.configured import receivers_of  # noqa: PLC0415 - only who watches needs it
    from jobpool.monitoring.alerts.watcher import Watcher  # noqa: PLC0415

    def opener() -> Store:
        from jobpool.store.opening import open_store  # noqa: PLC0415

        return open_store(settings.store, create=False, admission=settings.admission)

    watcher = Watcher(
        opener,
        alerts,
        receivers_of(alerts),
        observe,
        first_s=first_s,
        queue=without_password(settings.store),
    )
    watcher.start()
    try:
        yield
    finally:
        watcher.close()
