"""A memory trail: an attempt's memory over time, in few points; pure.

Theory of operation. Time is cut into stretches of equal length, and of each the highest
sample is kept. Once there are too many, the stretches are made twice as long. So an
attempt of any length costs the same, its highest memory is always among the points, and
a growth just before its end is not thinned out more than an earlier one. The first
sample is kept as it is: it says where the growth began.
"""

from __future__ import annotations

import msgspec

Point = tuple[int, int]
"""Milliseconds since the attempt began, and bytes."""
POINTS_MAX = 64
_KEPT = POINTS_MAX // 2
"""About as many points are left once the stretches are made longer."""


class Trail(msgspec.Struct, frozen=True):
    """An attempt's memory over time, as stored."""

    limit_bytes: int
    """Its memory limit."""
    points: tuple[Point, ...]
    """At most `POINTS_MAX`, oldest first."""


class MemoryTrail:
    """The samples of one attempt."""

    __slots__ = ("_first", "_points", "_stretch_ms", "_until_ms")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget everything: another attempt begins."""
        self._first: Point | None = None
        self._points: list[Point] = []
        self._stretch_ms = 1
        self._until_ms = 0
        """When the stretch of the last point ends."""

    def add(self, at_ms: int, size_bytes: int) -> None:
        """Add a sample; *at_ms* is never before that of the one before."""
        if at_ms < self._until_ms:
            if size_bytes > self._points[-1][1]:
                self._points[-1] = (at_ms, size_bytes)
            return
        if self._first is None:
            self._first = (at_ms, size_bytes)
            return
        self._points.append((at_ms, size_bytes))
        self._until_ms = (at_ms // self._stretch_ms + 1) * self._stretch_ms
        if len(self._points) >= POINTS_MAX:
            self._thin()

    def points(self) -> tuple[Point, ...]:
        """Return what is kept, at most `POINTS_MAX` points, oldest first."""
        return () if self._first is None else (self._first, *self._points)

    def _thin(self) -> None:
        """Make the stretches longer until half of them would hold all points."""
        while self._points[-1][0] // self._stretch_ms >= _KEPT:
            self._stretch_ms *= 2
        highest: dict[int, Point] = {}
        for point in self._points:
            stretch = point[0] // self._stretch_ms
            highest[stretch] = max(
                point, highest.get(stretch, point), key=lambda one: one[1]
            )
        self._points = list(highest.values())
        last = self._points[-1][0] // self._stretch_ms
        self._until_ms = (last + 1) * self._stretch_ms


def trail_json(trail: Trail) -> str | None:
    """Return a trail as it is stored; None: it shows no change over time."""
    return msgspec.json.encode(trail).decode() if len(trail.points) > 1 else None


def trail_of(text: str | None) -> Trail | None:
    """Return a stored trail; None: there is none, or another program has written it."""
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=Trail)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return found if found.points else None
