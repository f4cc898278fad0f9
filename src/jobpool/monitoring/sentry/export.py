"""Sends reports to Sentry from a thread of the supervisor.

Theory of operation. The thread hands some of what was put aside to Sentry's own client,
waits until that has sent it, and goes on. That client knows proxies, certificates and
how long Sentry asks to be left alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from sentry_sdk import Client
from sentry_sdk.envelope import Envelope, Item
from sentry_sdk.utils import BadDsn

from jobpool.core.application.reports import Report
from jobpool.core.clock import Clock
from jobpool.core.config.settings import SentrySettings
from jobpool.core.events.event import Event
from jobpool.core.events.figures import (
    AttemptUnsuccessful,
    ReportsLeft,
    TickBegun,
    TickEnded,
)
from jobpool.core.events.supervisor import ReportsDropped
from jobpool.errors import ConfigError
from jobpool.monitoring.sending import Bounds, Sending
from jobpool.monitoring.sentry.payloads import check_in_of, error_of, is_reported

ASIDE_MAX = 1000
"""Events that wait to be sent."""
ASIDE_MAX_BYTES = 16 * 2**20
"""Of reports that children have left, among them."""
AT_ONCE = 50
"""Fewer than Sentry's client has room for."""
SEND_S = 2.0
"""How long is waited for some reports to be sent."""
CLOSE_S = 3.0
"""How long an end waits for the last ones."""
_TICKS = (TickBegun, TickEnded)
_Told = Report | AttemptUnsuccessful | TickBegun | TickEnded


class SentryExport:
    """Reports errors and ticks while it is entered.

    Args:
        settings: which of them, and where.
        directory: the application's.
        dropped: takes an event when reports were lost.
        clock: for the times of such events.
        environment: what Sentry is told that this is, unless the variable
            ``SENTRY_ENVIRONMENT`` says it; None: production.

    Raises:
        ConfigError: the DSN is none.
    """

    def __init__(
        self,
        settings: SentrySettings,
        directory: str,
        dropped: Callable[[Event], None],
        clock: Clock,
        environment: str | None = None,
    ) -> None:
        self._each = settings.each
        ticks = _TICKS if settings.monitors else ()
        self._heard = (AttemptUnsuccessful, ReportsLeft, *ticks)
        self._directory = directory
        self._dropped = dropped
        self._clock = clock
        bounds = Bounds(ASIDE_MAX, AT_ONCE, ASIDE_MAX_BYTES)
        self._sending: Sending[_Told, str] = Sending(
            "jobpool-sentry", self, bounds, clock
        )
        # Its complaints would be mixed with the log.
        logging.getLogger("sentry_sdk.errors").addHandler(logging.NullHandler())
        try:
            # Nothing of this process is patched, and nothing else of it is reported.
            self._client = Client(
                dsn=settings.dsn,
                environment=os.environ.get("SENTRY_ENVIRONMENT") or environment,
                default_integrations=False,
                auto_enabling_integrations=False,
                enable_backpressure_handling=False,
                send_client_reports=False,  # they would be counted as losses, too
            )
        except BadDsn as exc:
            raise ConfigError(
                f"[sentry] dsn: Sentry's client does not take it: {exc}; nothing was "
                "started"
            ) from None
        transport: Any = self._client.transport
        transport.on_dropped_event = self._note_loss

    def hears(self, kind: type[Event]) -> bool:
        """Say whether events of a class are used."""
        return kind in self._heard

    def observe(self, event: Event) -> None:
        """Put an event aside, or the reports of a child that it carries."""
        match event:
            case ReportsLeft():
                for report in event.reports:
                    self._sending.put(report, report.size_bytes)
            case AttemptUnsuccessful() if is_reported(event, each=self._each):
                said = event.report
                if said is None:
                    self._sending.put(event)
                elif said.items:  # else its application wants nobody told
                    self._sending.put(said, said.size_bytes)
            case TickBegun() | TickEnded() if type(event) in self._heard:
                self._sending.put(event)

    def __enter__(self) -> Self:
        """Begin to send, in the background."""
        self._sending.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Send what is left, if that does not take long."""
        self._sending.close(CLOSE_S)
        self._client.close(timeout=0.0)

    # -- in the thread that sends ------------------------------------------------------

    def make(self, thing: _Told) -> str | None:
        """Hand a report to Sentry's client; return its id."""
        if isinstance(thing, Report):
            return self._pass_on(thing)
        if isinstance(thing, AttemptUnsuccessful):
            return self._capture(error_of(thing, self._directory))
        found = check_in_of(thing)
        return None if found is None else self._capture(found)

    def _capture(self, event: Any) -> str | None:
        return self._client.capture_event(event)

    def _pass_on(self, report: Report) -> str | None:
        """Hand on what a child has left, unread."""
        if self._client.transport is None:
            return None
        sent_at = datetime.fromtimestamp(self._clock.utc_ms() / 1000, UTC).isoformat()
        headers: dict[str, Any] = {"event_id": report.id, "sent_at": sent_at}
        if report.trace:
            headers["trace"] = report.trace
        items = [Item(item.data, dict(item.headers)) for item in report.items]
        self._client.transport.capture_envelope(Envelope(headers, items))
        return report.id

    def send(self, made: Sequence[str]) -> None:
        """Wait until Sentry's client has sent everything, or given it up."""
        del made  # it has them
        most_s = min(SEND_S, self._sending.left_s)
        by_s = self._clock.monotonic_s() + most_s
        self._client.flush(timeout=most_s)
        if self._clock.monotonic_s() < by_s:
            self._sending.arrived()

    def tell(self, things: int, reason: str) -> None:
        """See `Carrier.tell`."""
        at_ms = self._clock.utc_ms()
        self._dropped(ReportsDropped(at_ms=at_ms, reports=things, reason=reason))

    def _note_loss(self, reason: str) -> None:
        self._sending.lose(1, f"Sentry has not taken them: {reason}")
