"""Blocks, bars and rows of exact width. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.text import Text

from jobpool.core.safe_text import one_line

_CELL_MAX = 400
_GAP = 2
BLOCKS = " ▁▂▃▄▅▆▇█"
_BLOCKS_ASCII = " .:-=+*%#"
_HIGH, _FULL = 0.7, 0.9
"""A share of a memory limit that is worth a look; one that is a danger."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    width: int
    """In cells; the column with `takes_rest` has at least this."""
    right: bool = False
    spare: int = 0
    """Those with the highest number are left out first where there is no room; 0: it
    always stays."""
    takes_rest: bool = False


def fill_style(share: float) -> str:
    """Return the colour of a child that is filled so far."""
    if share >= _FULL:
        return "bold red"
    return "yellow" if share >= _HIGH else "green"


def block(share: float, *, ascii_only: bool = False) -> Text:
    """Return one cell that is filled to a share from below; never empty."""
    glyphs = _BLOCKS_ASCII if ascii_only else BLOCKS
    level = min(len(glyphs) - 1, max(1, round(share * (len(glyphs) - 1))))
    return Text(glyphs[level], style=fill_style(share))


def bar(share: float, width: int, style: str, *, ascii_only: bool = False) -> Text:
    """Return a bar that is filled to a share from the left, on a dim ground."""
    share = min(1.0, max(0.0, share))
    if ascii_only:
        full = round(share * width)
        return Text("#" * full, style=style).append("." * (width - full), style="dim")
    full, half = divmod(round(share * width * 2), 2)
    shown = "━" * full + "╸" * half
    return Text(shown, style=style).append("─" * (width - len(shown)), style="dim")


def text(value: object, style: str = "") -> Text:
    """Return a value as harmless text; None is a dash."""
    if isinstance(value, Text):
        return value
    if value is None:
        return Text("-", style="dim")
    return Text(one_line(str(value), _CELL_MAX), style=style)


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the columns for which there is room; the last gets what is left."""
    kept = list(columns)
    while _least(kept) > width:
        spare = max(kept, key=lambda one: one.spare)
        if not spare.spare:
            break
        kept.remove(spare)
    rest = max(0, width - _least(kept))
    return [
        one._replace(width=one.width + rest) if one.takes_rest else one for one in kept
    ]


def _least(columns: Sequence[Column]) -> int:
    return sum(one.width for one in columns) + _GAP * (len(columns) - 1)


def line(
    columns: Iterable[Column], cells: dict[str, Text], width: int, style: str = ""
) -> Text:
    """Return a row: each cell cut or padded to its column, the whole to *width*."""
    found = Text(style=style, no_wrap=True, end="")
    for n, column in enumerate(columns):
        cell = cells[column.name].copy()
        cell.truncate(column.width, overflow="ellipsis")
        room = " " * (column.width - cell.cell_len)
        found.append(" " * _GAP if n else "")
        found.append(room if column.right else "")
        found.append_text(cell)
        found.append("" if column.right else room)
    found.truncate(width, overflow="ellipsis", pad=True)
    return found


def apart(left: Text, right: Text, width: int) -> Text:
    """Return a line with texts at both ends; the right one is cut last."""
    room = width - right.cell_len - _GAP
    if room <= 0:
        left, room = Text(), width - right.cell_len
    cut = left.copy()
    cut.truncate(room, overflow="ellipsis", pad=True)
    found = Text(no_wrap=True, end="").append_text(cut)
    found.append(" " * (width - right.cell_len - cut.cell_len)).append_text(right)
    found.truncate(width, pad=True)
    return found
