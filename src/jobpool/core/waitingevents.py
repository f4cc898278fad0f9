"""Events about jobs that wait although they were begun, and their words."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.budget import attempt_words
from jobpool.core.events import Event, Level
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


class JobUnfit(Event, frozen=True, kw_only=True):
    """A job's arguments did not fit its handler here; they may fit somebody else's."""

    name = "job_unfit"
    level = Level.WARNING

    id: int
    kind: str
    slot: str
    unknown_for_s: float
    """It is dead if they have fitted nobody for so long."""
    reason: str | None = None


def parts(event: JobSnoozed | JobUnfit) -> Iterator[str]:
    """Yield the parts of one's line for people."""
    if isinstance(event, JobUnfit):
        yield f"job {event.id} does not fit here"
        yield event.slot
        yield event.kind
        yield event.reason or ""
        within = show_duration(event.unknown_for_s)
        yield f"handed back, dead unless it fits another supervisor within {within}"
        return
    yield f"job {event.id} snoozed"
    yield event.slot
    yield attempt_words(event.attempt)
    yield event.kind
    again = f"again in {show_duration(event.delay_s)}"
    yield ", ".join(filter(None, (event.reason, again)))
    yield f"snooze {event.snoozes:,} of {SNOOZES_MAX:,} in a row"
