"""One figure of all systems as an SVG: bars on a logarithmic scale. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from bench.report import Spread

WIDTH, LEFT, RIGHT, TOP, ROW = 720, 170, 90, 44, 26
OURS = "#1a7f37"
THEIRS = "#8c959f"
LIMIT = "#bf8700"


def bars(title: str, found: Mapping[str, Spread]) -> str:
    """Draw medians as bars, with a line from the minimum to the maximum.

    Args:
        title: above the bars.
        found: at least one system, all values above 0.
    """
    ranked = sorted(found.items(), key=lambda item: -item[1].middle)
    first = math.floor(math.log10(min(each.low for _, each in ranked)))
    last = math.ceil(math.log10(max(each.high for _, each in ranked)))
    last = max(last, first + 1)

    def at(value: float) -> float:
        share = (math.log10(value) - first) / (last - first)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    height = TOP + ROW * len(ranked) + 30
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="13">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="10" y="22" font-weight="bold">{escape(title)}</text>',
    ]
    for power in range(first, last + 1):
        x = at(10.0**power)
        parts.append(
            f'<path d="M{x:.1f} {TOP - 6}V{height - 24}" stroke="#d0d7de"/>'
            f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">'
            f"{10.0**power:,g}</text>"
        )
    for row, (system, each) in enumerate(ranked):
        parts += _row(TOP + ROW * row, system, [at(value) for value in each], each)
    return "\n".join([*parts, "</svg>", ""])


def _row(top: float, system: str, xs: list[float], found: Spread) -> list[str]:
    low, middle, high = xs
    colour = LIMIT if system == "limit" else OURS if "jobpool" in system else THEIRS
    name = "limit program" if system == "limit" else system
    line = top + 9
    width = max(1, middle - LEFT)
    return [
        f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{escape(name)}</text>',
        (
            f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="18" '
            f'fill="{colour}"/>'
        ),
        f'<path d="M{low:.1f} {line}H{high:.1f}" stroke="#24292f"/>',
        (
            f'<text x="{max(middle, high) + 6:.1f}" y="{top + 14}">'
            f"{found.middle:,.0f}</text>"
        ),
    ]
