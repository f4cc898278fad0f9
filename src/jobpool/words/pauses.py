"""What is said of a pause: by whom, since when, until when, and why. Pure."""

from __future__ import annotations

from jobpool.core.event_lines import iso_time
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.schedules import ScheduleRow
from jobpool.words.figures import ago


def pause_words(pause: PauseRow, now_ms: int) -> str:
    """Return who has paused something, since when, until when, and why."""
    parts = (
        f"by {pause.who}" if pause.who else "",
        ago(pause.since_ms, now_ms) or "",
        f"until {iso_time(pause.until_ms)}" if pause.until_ms is not None else "",
    )
    words = ", ".join(filter(None, parts))
    return ": ".join(filter(None, (words, pause.note)))


def schedule_pause_words(row: ScheduleRow, now_ms: int) -> str:
    """Return the same of a schedule that is paused."""
    pause = PauseRow(
        what="schedule",
        name=row.declared.name,
        since_ms=row.paused_ms,
        until_ms=row.paused_until_ms,
        who=row.paused_by,
        note=row.note,
    )
    return pause_words(pause, now_ms)


def paused_words(pause: PauseRow, now_ms: int) -> str:
    """Return how long something is paused still, and why; shortly."""
    until = "" if pause.until_ms is None else f"ends {ago(pause.until_ms, now_ms)}"
    by = f"by {pause.who}" if pause.who else ""
    said = ", ".join(filter(None, ("PAUSED", until, by)))
    return f"{said}: {pause.note}" if pause.note else said
