"""An attempt's memory over time, in one line. Pure."""

from __future__ import annotations

from itertools import pairwise

from jobpool.core.jobs.memory_trail import Trail
from jobpool.core.units import show_duration, show_size

_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS = 32


def memory_line(trail: Trail) -> str:
    """Return such as ``memory 41.2 MiB -> 512 MiB in 3.2s  ▁▁▂▃▅█  limit 512 MiB``."""
    (began_ms, first), (end_ms, last) = trail.points[0], trail.points[-1]
    peak = max(size for _, size in trail.points)
    more = f", peak {show_size(peak)}" if peak > max(first, last) else ""
    return (
        f"memory {show_size(first)} -> {show_size(last)} in "
        f"{show_duration((end_ms - began_ms) / 1000)}{more}  {_sparkline(trail)}  "
        f"limit {show_size(trail.limit_bytes)}"
    )


def _sparkline(trail: Trail) -> str:
    """Draw it in columns of equal time, each as high as its highest memory.

    The highest block is the limit, or the peak beyond it.
    """
    began_ms, end_ms = trail.points[0][0], trail.points[-1][0]
    columns = min(_COLUMNS, len(trail.points))
    sizes = [0] * columns
    place = 0
    for (at_ms, size), (next_ms, _) in pairwise((*trail.points, trail.points[-1])):
        place = _column(at_ms - began_ms, end_ms - began_ms, columns)
        until = max(place + 1, _column(next_ms - began_ms, end_ms - began_ms, columns))
        for column in range(place, until):  # it lasts until the next sample
            sizes[column] = max(sizes[column], size)
    top = max(trail.limit_bytes, *sizes, 1)
    return "".join(_BLOCKS[min(7, size * len(_BLOCKS) // top)] for size in sizes)


def _column(passed_ms: int, whole_ms: int, columns: int) -> int:
    return min(columns - 1, passed_ms * columns // max(whole_ms, 1))
