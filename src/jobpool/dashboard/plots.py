"""The geometry of small plots that are drawn on the server. Pure.

Templates draw it (`plots.html`): colours are the style sheet's, by class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_TICKS = 4
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 10.0, 8.0, 22.0
_COLUMN, _COLUMN_GAP, _COLUMN_HEIGHT = 13, 3, 26
_RUNS = 2.0
"""What runs is seen to run, however little it uses."""
_HOT, _WARM = 0.9, 0.7
"""A child that has used so much of its limit is about to be killed, or may be."""


class Tick(NamedTuple):
    """A labelled place on an axis."""

    at: float
    text: str


class Band(NamedTuple):
    """A series of a stack."""

    name: str
    """The class of its colour."""
    polygon: str
    line: str
    """Its upper edge."""


class Stop(NamedTuple):
    """A strip of the plot that tells its values to whoever points at it."""

    at: float
    width: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Stack:
    """Series on top of each other over time."""

    width: float
    height: float
    left: float
    right: float
    bottom: float
    top: float
    bands: tuple[Band, ...]
    levels: tuple[Tick, ...]
    stops: tuple[Stop, ...]


def stack(
    names: Sequence[str],
    series: Sequence[Sequence[float]],
    *,
    width: float = 560.0,
    height: float = 220.0,
) -> Stack:
    """Return series on top of each other, the first at the bottom.

    Args:
        names: the classes of their colours.
        series: values of each, all of the same length, oldest first.
        width: of the whole plot.
        height: likewise.
    """
    count = len(series[0])
    totals = [[0.0] * count]
    for values in series:
        totals.append(
            [below + value for below, value in zip(totals[-1], values, strict=True)]
        )
    step, most = scale(max(totals[-1], default=0.0))
    right, bottom = width - _RIGHT, height - _BOTTOM

    def x(n: int) -> float:
        return _LEFT + n * (right - _LEFT) / max(1, count - 1)

    def y(value: float) -> float:
        return bottom - value * (bottom - _TOP) / most

    def edge(values: Sequence[float]) -> list[str]:
        return [f"{x(n):.1f},{y(value):.1f}" for n, value in enumerate(values)]

    bands = tuple(
        Band(
            name,
            polygon=" ".join(edge(upper) + edge(lower)[::-1]),
            line=" ".join(edge(upper)),
        )
        for name, lower, upper in zip(names, totals, totals[1:], strict=False)
    )
    levels = tuple(
        Tick(y(n * step), _short(n * step)) for n in range(round(most / step) + 1)
    )
    strip = (right - _LEFT) / max(1, count - 1)
    stops = tuple(
        Stop(x(n) - strip / 2, strip, tuple(values[n] for values in series))
        for n in range(count)
    )
    return Stack(
        *(width, height, _LEFT, right, bottom, _TOP),
        bands=bands,
        levels=levels,
        stops=stops,
    )


def scale(highest: float) -> tuple[float, float]:
    """Return the distance of an axis' levels and its end: round numbers."""
    if not highest > 0 or not math.isfinite(highest):
        return 1.0, 1.0
    raw = max(highest / _TICKS, 1.0)  # also where the quotient is too small for a float
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= raw)
    return step, step * math.ceil(highest / step)


class Column(NamedTuple):
    """A child, filled to its memory limit."""

    x: int
    y: int
    fill_y: float
    fill: float
    """The height of what is full; 0: idle, or nothing is known yet."""
    tone: str
    share: float | None
    what: int | None
    """The place of its attempt among those given; None: it runs none."""


@dataclass(frozen=True)
class Columns:
    """A pool's children, and the room that it may still take."""

    width: int
    height: int
    column: int
    tall: int
    columns: tuple[Column, ...]
    more: int
    """Children beyond those that are drawn."""


def columns(
    shares: Sequence[float | None],
    size: int,
    most: int,
    *,
    busy: int = 0,
    a_row: int = 12,
    rows: int = 6,
) -> Columns:
    """Return columns for what runs, then idle children, then room to grow.

    Args:
        shares: of each running attempt: how full its child is; None: not known yet.
        size: children.
        most: the children that there may be.
        busy: children that have work, also if their attempts are not known yet.
        a_row: so many stand in a row.
        rows: the most rows.
    """
    size = max(size, len(shares))
    wanted, room = max(size, most), a_row * rows
    drawn = []
    for n in range(min(wanted, room)):
        row, place = divmod(n, a_row)
        x, y = place * (_COLUMN + _COLUMN_GAP), row * (_COLUMN_HEIGHT + _COLUMN_GAP)
        share = shares[n] if n < len(shares) else None
        fill = round(min(max(share or 0.0, 0.0), 1.0) * _COLUMN_HEIGHT, 1)
        tone = "room" if n >= size else "" if share is None else _tone(share)
        what = n if n < len(shares) else None
        if n < max(busy, len(shares)) and n < size:
            fill = max(fill, _RUNS)
        drawn.append(Column(x, y, y + _COLUMN_HEIGHT - fill, fill, tone, share, what))
    lines = max(1, -(-len(drawn) // a_row))
    across = max(1, min(len(drawn), a_row))
    return Columns(
        width=across * (_COLUMN + _COLUMN_GAP) - _COLUMN_GAP,
        height=lines * (_COLUMN_HEIGHT + _COLUMN_GAP) - _COLUMN_GAP,
        column=_COLUMN,
        tall=_COLUMN_HEIGHT,
        columns=tuple(drawn),
        more=max(0, size - room),
    )


def _tone(share: float) -> str:
    return "hot" if share > _HOT else "warm" if share > _WARM else ""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value < 10_000 else f"{value / 1000:,.0f} k"  # noqa: PLR2004
