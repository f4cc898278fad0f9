"""What people do to schedules."""

from __future__ import annotations

from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.event_lines import iso_time
from jobpool.core.rules.schedules.policy import MISSED_AFTER_S
from jobpool.dashboard.actions.fields import span_s, text
from jobpool.dashboard.asked import Asked
from jobpool.errors import UsageError
from jobpool.operations.schedules import (
    Backfill,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
)
from jobpool.store.protocol import Store
from jobpool.words.moments import since_ms


async def run(asked: Asked) -> Response:
    """Enqueue a job of a schedule now."""
    form = await asked.form()
    name = asked.part("schedule")
    ids: list[int] = []
    action = RunSchedule(schedule=name, on_stored=ids.append, note=text(form, "note"))
    await asked.operate(action)
    return asked.go("schedule", schedule=name)


async def pause(asked: Asked) -> Response:
    """Let a schedule have no ticks."""
    form = await asked.form()
    name = asked.part("schedule")
    for_s = span_s(form, "for")
    action = PauseSchedule(schedule=name, for_s=for_s, note=text(form, "note"))
    await asked.operate(action)
    return asked.go("schedule", schedule=name)


async def resume(asked: Asked) -> Response:
    """Undo the pause of a schedule."""
    form = await asked.form()
    name = asked.part("schedule")
    action = ResumeSchedule(
        schedule=name, catch_up="catch_up" in form, note=text(form, "note")
    )
    await asked.operate(action)
    return asked.go("schedule", schedule=name)


async def remove(asked: Asked) -> Response:
    """Delete a schedule with its ticks; its jobs stay."""
    form = await asked.form()
    action = RemoveSchedule(schedule=asked.part("schedule"), note=text(form, "note"))
    await asked.operate(action)
    return asked.go("schedules")


async def backfill(asked: Asked) -> Response:
    """Count the ticks that a span of the past lacks; store them once that is agreed."""
    form = await asked.form()
    name = asked.part("schedule")
    now_ms = SystemClock().utc_ms()
    start, end = text(form, "from"), text(form, "to")
    if start is None:
        raise UsageError(
            "from: expected the first moment, such as 2d or 2030-01-31T18:00:00Z; "
            "nothing was stored"
        )
    from_ms = since_ms(start, now_ms, "from")
    to_ms = now_ms - MISSED_AFTER_S * 1000
    if end is not None:
        to_ms = since_ms(end, now_ms, "to")
    action = Backfill(
        schedule=name, from_ms=from_ms, to_ms=to_ms, note=text(form, "note")
    )
    if form.get("agreed") == "yes" or not asked.may(Backfill):  # which is refused
        await asked.operate(action)
        return asked.go("schedule", schedule=name)

    def count(store: Store) -> int:
        return store.backfill(name, from_ms, to_ms, dry_run=True)

    ticks = await asked.served.writing.read_at_length(count)
    return asked.page(
        "backfill.html",
        name=name,
        ticks=ticks,
        from_ms=from_ms,
        to_ms=to_ms,
        fields={
            "from": iso_time(from_ms),
            "to": iso_time(to_ms),
            "note": form.get("note", ""),
            "agreed": "yes",
        },
    )
