"""Events about suspects and about kinds that crash in a row, and their words."""

from __future__ import annotations

from collections.abc import Iterator

from jobpool.core.breaker import BreakerState
from jobpool.core.events import Event, Level
from jobpool.core.quantity import show_duration


class JobSuspected(Event, frozen=True, kw_only=True):
    """A job was running when its supervisor or host died: it runs alone next."""

    name = "job_suspected"
    level = Level.WARNING

    id: int
    kind: str
    recoveries: int
    """How often it took one along while it was alone."""


class JobCleared(Event, frozen=True, kw_only=True):
    """A suspect has run well: it is none any more."""

    name = "job_cleared"

    id: int
    kind: str
    ran_s: float | None = None
    """For so long, and it still runs; None: it came to its end."""


class KindSlowed(Event, frozen=True, kw_only=True):
    """Jobs of a kind crash in a row: they begin more rarely, one at a time."""

    name = "kind_slowed"
    level = Level.ERROR

    kind: str
    state: BreakerState
    crashes: int
    """Different jobs in a row."""
    again_in_s: float


class KindResumed(Event, frozen=True, kw_only=True):
    """The jobs of a kind begin as they come again."""

    name = "kind_resumed"
    level = Level.WARNING

    kind: str
    reason: str


def parts(event: Event) -> Iterator[str]:
    """Yield the parts of one's line for people."""
    match event:
        case JobSuspected():
            yield f"job {event.id} suspected"
            yield "it was running when its supervisor or host died; it runs alone next"
            yield f"{event.recoveries} died with it while it was alone"
            yield event.kind
        case JobCleared():
            yield f"job {event.id} cleared"
            if event.ran_s is None:
                yield "it came to its end"
            else:
                yield f"it has run alone for {show_duration(event.ran_s)}"
            yield event.kind
        case KindSlowed():
            yield f"kind {event.kind} {event.state}"
            yield f"{event.crashes} different jobs crashed in a row"
            yield f"next try in {show_duration(event.again_in_s)}"
            yield "the others wait; go on with: jobpool resume --kind"
        case KindResumed():
            yield f"kind {event.kind} resumed"
            yield event.reason
        case _:
            yield event.name
