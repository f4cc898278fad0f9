"""An attempt's memory over time as a plot, and attempts on one line of time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.memory_trail import Trail
from jobpool.core.jobs.outcome import Outcome

WIDTH, HEIGHT = 460, 64
"""Of the plot, without the limit's label to its right."""
_BASE, _TOP = 58.0, 6.0
LINE_WIDTH = 1000
_BAR_LEAST = 3.0
"""A bar is never narrower, however short its attempt."""
_HEADROOM = 1.12
"""How much room is above the highest that is drawn."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plot's lines are, in its own units."""

    line: str
    """Points of the curve."""
    area: str
    """The same, with the base below it."""
    limit_y: str
    end_x: str
    end_y: str
    is_over: bool
    """It has ended above its limit."""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt on the line of time."""

    x: str
    width: str
    tone: str
    label: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A job's attempts on one line, from when it was enqueued."""

    bars: tuple[Bar, ...]
    from_ms: int
    to_ms: int


def curve_of(trail: Trail) -> Curve:
    """Return the plot of an attempt's memory against its limit."""
    began_ms, end_ms = trail.points[0][0], trail.points[-1][0]
    top = max(trail.limit_bytes, *(size for _, size in trail.points), 1) * _HEADROOM
    length_ms = max(1, end_ms - began_ms)

    def y_of(size: float) -> float:
        return _BASE - (_BASE - _TOP) * size / top

    places = [
        ((at_ms - began_ms) / length_ms * WIDTH, y_of(size))
        for at_ms, size in trail.points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    end_x, end_y = places[-1]
    return Curve(
        line=line,
        area=f"0,{_BASE:.0f} {line} {end_x:.1f},{_BASE:.0f}",
        limit_y=f"{y_of(trail.limit_bytes):.1f}",
        end_x=f"{end_x:.1f}",
        end_y=f"{end_y:.1f}",
        is_over=trail.points[-1][1] >= trail.limit_bytes,
    )


def tone_of(outcome: Outcome | None) -> str:
    """Return the colour of an end: what killed it is bad, what it did is a warning."""
    match outcome:
        case Outcome.SUCCEEDED:
            return "good"
        case Outcome.FAILED | Outcome.INTERRUPTED | Outcome.LOST | Outcome.STALLED:
            return "warn"
        case None | Outcome.CANCELED:
            return ""
        case _:
            return "bad"


def line_of_time(job: Job, attempts: Sequence[Attempt], now_ms: int) -> Line | None:
    """Return a job's attempts on one line of time; None: none has begun."""
    spans = [
        (one.started_at_ms, one.finished_at_ms, tone_of(one.outcome), one.attempt)
        for one in attempts
    ]
    if job.started_at_ms is not None:
        if job.state is JobState.LEASED:
            spans.append((job.started_at_ms, now_ms, "accent", job.attempt))
        elif job.state is JobState.SUCCEEDED and job.finished_at_ms is not None:
            spans.append((job.started_at_ms, job.finished_at_ms, "good", job.attempt))
    if not spans:
        return None
    from_ms = min(job.created_at_ms, spans[0][0])
    to_ms = max(end_ms for _, end_ms, *_ in spans)
    scale = LINE_WIDTH / max(1, to_ms - from_ms)
    bars = []
    for began_ms, ended_ms, tone, number in spans:
        width = max(_BAR_LEAST, (ended_ms - began_ms) * scale)
        x = min(max(0.0, (began_ms - from_ms) * scale), LINE_WIDTH - _BAR_LEAST)
        bars.append(
            Bar(
                x=f"{x:.1f}",
                width=f"{min(width, LINE_WIDTH - x):.1f}",
                tone=tone,
                label=f"attempt {number}",
            )
        )
    return Line(bars=tuple(bars), from_ms=from_ms, to_ms=to_ms)
