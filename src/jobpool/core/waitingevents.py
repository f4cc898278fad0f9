"""Events about jobs that wait although they were begun, and their words."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.budget import attempt_words
from jobpool.core.events import Event
from jobpool.core.policy import SNOOZES_MAX
from jobpool.core.quantity import show_duration


class JobSnoozed(Event, frozen=True, kw_only=True):
    """An attempt said "not yet": it costs nothing, and its job is called again."""

    name = "job_snoozed"

    id: int
    kind: str
    slot: str
    attempt: int
    snoozes: int
    """In a row, with this one."""
    delay_s: float
    """It is called again after so long."""
    reason: str | None = None


def parts(event: JobSnoozed) -> Iterator[str]:
    """Yield the parts of one's line for people."""
    yield f"job {event.id} snoozed"
    yield event.slot
    yield attempt_words(event.attempt)
    yield event.kind
    again = f"again in {show_duration(event.delay_s)}"
    yield ", ".join(filter(None, (event.reason, again)))
    yield f"snooze {event.snoozes:,} of {SNOOZES_MAX:,} in a row"
