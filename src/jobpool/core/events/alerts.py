"""Events of those who watch the queue and tell what is wrong, and their words."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.events.event import Event, Level
from jobpool.core.units import show_duration


class IncidentOpened(Event, frozen=True, kw_only=True):
    """Something is wrong with the queue; who has found it first says so."""

    name = "incident_opened"
    level = Level.WARNING

    rule: str
    subject: str
    summary: str


class IncidentEnded(Event, frozen=True, kw_only=True):
    """It is over."""

    name = "incident_ended"

    rule: str
    subject: str
    summary: str
    """What was wrong."""
    lasted_s: float


class AlertNotSent(Event, frozen=True, kw_only=True):
    """A receiver did not take an alert, or the heartbeat."""

    name = "alert_not_sent"
    level = Level.ERROR

    alert: str
    receiver: str
    reason: str
    again_in_s: float | None = None
    """None: it is not tried again."""


class NotWatched(Event, frozen=True, kw_only=True):
    """Whether all is well could not be seen: the store is away, or there is a bug.

    It is tried again.
    """

    name = "not_watched"
    level = Level.WARNING

    reason: str


def alert_parts(
    event: IncidentOpened | IncidentEnded | AlertNotSent | NotWatched,
) -> Iterator[str]:
    """Yield what an event says to people: see `sentences`."""
    match event:
        case IncidentOpened():
            yield f"alert {event.rule}"
            yield event.summary
        case IncidentEnded():
            yield f"alert {event.rule} is over"
            yield f"after {show_duration(round(event.lasted_s))}"
            yield event.summary
        case AlertNotSent():
            yield f"alert {event.alert} was not sent"
            yield f"{event.receiver}: {event.reason}"
            if event.again_in_s is None:
                yield "it is not tried again"
            else:
                yield f"next try in {show_duration(event.again_in_s)}"
        case NotWatched():
            yield "the queue is not watched"
            yield event.reason
