"""How often attempts have used how much, as bars on a logarithmic axis. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jobpool.core.rules.usage.sketch import Counts, value_of

_WIDTH, _HEIGHT = 560.0, 190.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 8.0, 8.0, 52.0, 22.0
_BARS_MAX = 48
_BAR_LEAST = 1.5
"""Pixels: one attempt among a million is seen."""
_TICKS_MAX = 7
_ROOM = 1.12
"""Times the highest value: where the axis ends."""
_SPAN_LEAST = 4.0
"""Times the lowest value: so long is the axis at least."""
_MARK_ROW = 15.0
_SIDE = 0.6
"""Marks beyond this share of the width have their text to the left."""
_SIDES = {"p99": 0.2}
"""Lines of limits stand to the right of it, nearly always."""

SIZES = tuple(2.0**power for power in range(10, 51))
"""Where ticks may stand, in bytes."""
TIMES = tuple(
    1000.0 * one
    for one in (
        *(0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 86400.0, 864000.0),
    )
)
"""The same, in milliseconds."""


class Bar(NamedTuple):
    """Attempts that have used about the same."""

    left: float
    width: float
    top: float
    height: float
    cut_height: float
    """Of it, from below: attempts that were ended early, and would have used more."""
    said: str


class Mark(NamedTuple):
    """A value that is drawn in."""

    at: float
    look: str
    text: str
    text_y: float
    is_left: bool
    """Its text stands to the left of its line."""


class Tick(NamedTuple):
    """A labelled place on the axis."""

    at: float
    text: str


class Distribution(NamedTuple):
    """The plot."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]


def distribution(
    counts: Mapping[int, Counts],
    marks: Sequence[tuple[str, str, float | None]],
    places: Sequence[float],
    show: Callable[[float], str],
) -> Distribution | None:
    """Return the plot; None: there is no attempt.

    Args:
        counts: a sketch.
        marks: looks, names and values to be drawn in, from top to bottom; without a
            value, it is left out.
        places: where ticks may stand.
        show: a value in words.
    """
    used = sorted(bucket for bucket, one in counts.items() if one.attempts > 0)
    if not used:
        return None
    values = [value for _, _, value in marks if value]
    low = min([value_of(used[0] - 1), *values])
    high = _ROOM * max([value_of(used[-1]), *values, _SPAN_LEAST * low])
    axis = _Axis(low / _ROOM, high)
    return Distribution(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_WIDTH - _RIGHT,
        top=_TOP,
        bottom=_HEIGHT - _BOTTOM,
        bars=tuple(_bars(counts, used, axis, show)),
        marks=tuple(_marks(marks, axis, show)),
        ticks=tuple(_ticks(places, axis, show)),
    )


class _Axis(NamedTuple):
    low: float
    high: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        share = min(max(share, 0.0), 1.0)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _bars(
    counts: Mapping[int, Counts],
    used: Sequence[int],
    axis: _Axis,
    show: Callable[[float], str],
) -> Iterator[Bar]:
    wide = 1 + (used[-1] - used[0]) // _BARS_MAX
    attempts: Counter[int] = Counter()
    cut: Counter[int] = Counter()
    for bucket in used:
        attempts[bucket // wide] += counts[bucket].attempts
        cut[bucket // wide] += counts[bucket].censored
    most, room = max(attempts.values()), _HEIGHT - _BOTTOM - _TOP
    for group, count in sorted(attempts.items()):
        low, high = value_of(group * wide - 1), value_of(group * wide + wide - 1)
        left = axis.at(low)
        height = max(_BAR_LEAST, room * count / most)
        early = f", {cut[group]:,} of them ended early" if cut[group] else ""
        noun = "attempt" if count == 1 else "attempts"
        yield Bar(
            left=left,
            width=round(max(axis.at(high) - left - 0.8, 0.8), 1),
            top=round(_HEIGHT - _BOTTOM - height, 1),
            height=round(height, 1),
            cut_height=round(height * cut[group] / count, 1),
            said=f"{show(low)} to {show(high)}: {count:,} {noun}{early}",
        )


def _marks(
    marks: Sequence[tuple[str, str, float | None]],
    axis: _Axis,
    show: Callable[[float], str],
) -> Iterator[Mark]:
    for row, (look, name, value) in enumerate(
        one for one in marks if one[2] is not None and one[2] > 0
    ):
        value = value or 0.0  # noqa: PLW2901 - just said to be one
        at = axis.at(value)
        yield Mark(
            at=at,
            look=look,
            text=f"{name} {show(value)}",
            text_y=12 + _MARK_ROW * row,
            is_left=at > _SIDES.get(look, _SIDE) * _WIDTH,
        )


def _ticks(
    places: Sequence[float], axis: _Axis, show: Callable[[float], str]
) -> Iterator[Tick]:
    within = [one for one in places if axis.low <= one <= axis.high]
    for value in within[:: 1 + len(within) // _TICKS_MAX]:
        yield Tick(axis.at(value), show(value))
