"""Schedules: when they come next, how their last ticks ended, and one in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.config.layers import nearest
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.schedule import Declared, TickState
from jobpool.dashboard.asked import Asked, NotKnown
from jobpool.dashboard.reading import Unknown
from jobpool.operations.schedules import (
    Backfill,
    Outlook,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
    outlook,
    state_of,
)
from jobpool.store.protocol import Store
from jobpool.store.records.operating import PauseRow
from jobpool.store.records.schedules import ScheduleRow, TickRow
from jobpool.words.figures import clock_time
from jobpool.words.pauses import pause_words
from jobpool.words.schedules import facts, tick_end, why_none

_LISTED_MAX = 200
_STRIP = 24
"""Ticks of a schedule in the list."""
_STRIPS_MAX = 50
"""So many schedules of the list have their last ticks beside them."""
_TICKS = 60
_NEXT = 8
_STATES = {"retired": "", "paused": "warn", "overdue": "bad", "active": ""}
_LOOKS = {
    JobState.SUCCEEDED: "good",
    JobState.DEAD: "bad",
    JobState.QUARANTINED: "aside",
    JobState.CANCELED: "skipped",
}


class Mark(msgspec.Struct, frozen=True):
    """A tick as a small square."""

    look: str
    at_ms: int
    end: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in the list."""

    row: ScheduleRow
    state: str
    tone: str
    seen: Outlook
    next_ms: int | None
    why_none: str | None
    """Why there is no next time, if its state does not say it."""
    strip: tuple[Mark, ...]
    """Its last ticks, the oldest first."""


class TickLine(msgspec.Struct, frozen=True, kw_only=True):
    """A tick in the table."""

    row: TickRow
    local: str
    mark: Mark
    ref: str | None
    """Of its job, if that is still there."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """What one schedule's page shows."""

    line: Line
    facts: tuple[tuple[str, str], ...]
    upcoming: tuple[tuple[int, str], ...]
    """Its next times, and as the clocks of its zone show them."""
    ticks: tuple[TickLine, ...]
    holds: tuple[str, ...]
    """What is paused, so that its jobs wait."""


async def show_list(asked: Asked) -> Response:
    """Answer with the list."""

    def read(store: Store) -> list[Line]:
        return lines_of(store, SystemClock().utc_ms())

    listed = await asked.reading.read(read)
    states: Counter[str] = Counter()
    if not isinstance(listed, Unknown):
        states.update(one.state for one in listed)
    return asked.page("schedules.html", listed=listed, states=states, most=_LISTED_MAX)


async def show_one(asked: Asked) -> Response:
    """Answer with one schedule."""
    name = asked.part("schedule")

    def read(store: Store) -> ScheduleView:
        return view_of(store, name, SystemClock().utc_ms())

    return asked.page(
        "schedule.html",
        name=name,
        seen=await asked.reading.read(read),
        actions={
            "run": RunSchedule,
            "pause": PauseSchedule,
            "resume": ResumeSchedule,
            "backfill": Backfill,
            "remove": RemoveSchedule,
        },
    )


def lines_of(store: Store, now_ms: int) -> list[Line]:
    """Read the list: what is overdue first, retired ones last."""
    rank = [*("overdue", "paused", "active", "retired")]
    rows = sorted(store.schedules(), key=lambda row: rank.index(state_of(row, now_ms)))
    return [
        _line(
            row,
            store.ticks(row.declared.name, _STRIP) if n < _STRIPS_MAX else (),
            now_ms,
        )
        for n, row in enumerate(rows[:_LISTED_MAX])
    ]


def view_of(store: Store, name: str, now_ms: int) -> ScheduleView:
    """Read one schedule.

    Raises:
        NotKnown: there is none of this name.
    """
    rows = store.schedules(name)
    if not rows:
        known = [row.declared.name for row in store.schedules()]
        raise NotKnown(f"there is no schedule {name[:200]!r}; {nearest(name, known)}")
    row, ticks = rows[0], store.ticks(name, _TICKS)
    seen = outlook(row, now_ms, _NEXT)
    return ScheduleView(
        line=_line(row, ticks, now_ms),
        facts=tuple(facts(row, seen, now_ms)),
        upcoming=tuple((at, _local(at, seen.tz)) for at in seen.upcoming_ms),
        ticks=tuple(
            TickLine(
                row=tick,
                local=_local(tick.nominal_ms, seen.tz),
                mark=_mark(tick),
                ref=None if tick.job_id is None else store.ref_of(tick.job_id),
            )
            for tick in ticks
        ),
        holds=tuple(_holds(row.declared, store.pauses(), now_ms)),
    )


def _line(row: ScheduleRow, ticks: Sequence[TickRow], now_ms: int) -> Line:
    seen, state = outlook(row, now_ms, 1), state_of(row, now_ms)
    return Line(
        row=row,
        state=state,
        tone=_STATES[state],
        seen=seen,
        next_ms=seen.upcoming_ms[0] if seen.upcoming_ms else None,
        why_none=why_none(row, seen),
        strip=tuple(map(_mark, reversed(ticks[:_STRIP]))),
    )


def _mark(tick: TickRow) -> Mark:
    look = _LOOKS.get(tick.job_state) if tick.job_state is not None else None
    if look is None:
        look = "skipped" if tick.state is TickState.SKIPPED else "open"
        look = "gone" if tick.state is TickState.DONE else look
    return Mark(look, tick.nominal_ms, _end(tick))


def _end(tick: TickRow) -> str:
    """Return what came of a tick, without the number of its job."""
    if tick.job_id is None:
        return tick_end(tick)
    said = str(tick.job_state or "its job is gone")
    return f"{said}, backfilled" if tick.backfilled else said


def _local(at_ms: int, tz: str) -> str:
    return "" if tz == "UTC" else clock_time(at_ms, tz) or ""


def _holds(
    declared: Declared, pauses: Sequence[PauseRow], now_ms: int
) -> Iterator[str]:
    names = {"pool": declared.pool, "kind": declared.kind, "store": ""}
    for one in pauses:
        if one.name == names.get(one.what):
            what = f"{one.what} {one.name}" if one.name else "the whole store"
            yield f"{what} is paused {pause_words(one, now_ms)}".rstrip()
