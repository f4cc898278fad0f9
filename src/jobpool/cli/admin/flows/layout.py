"""Lays out the steps of a flow as lines of text. Pure.

Theory of operation. A flow is a graph, and lines of text are a list: what is drawn is
the tree of dominators. A step stands below the last one that all ways to it lead
through, so what runs side by side stands side by side, and where it joins again the
next step goes on at the margin that was left:

    charge
    ├─ reserve
    ├─ invoice
    ship           after reserve and invoice
    ├─ mail
    └─ refund      if ship failed

A chain stays at its margin, else one of fifty steps would leave the screen. An edge
that others imply is not looked at: a mail after ship and invoice stands below ship. All
edges are told beside the tree: it is a picture, and leaves some out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from jobpool.words.flows.order import Before, direct, in_order

_ROOT = -1
"""Stands above the steps that nothing comes before; it has no line."""
_STEM_MAX = 36
"""Columns of a stem; what is longer loses its beginning."""


class Line(NamedTuple):
    """One line of the picture."""

    stem: str
    """What leads to it: ``│  ├─ ``."""
    steps: tuple[int, ...]
    """The step; several: they are left out, and this line stands for them."""


def lines(before: Before, shown: Collection[int]) -> Iterator[Line]:
    """Yield the picture from top to bottom.

    Args:
        before: all steps.
        shown: those that get a line of their own; others in a row share one.
    """
    left_out: list[int] = []
    first_stem = ""
    for stem, step in _drawn(before):
        if step not in shown:
            first_stem = first_stem if left_out else stem
            left_out.append(step)
            continue
        if left_out:
            yield Line(first_stem, tuple(left_out))
            left_out = []
        yield Line(stem, (step,))
    if left_out:
        yield Line(first_stem, tuple(left_out))


def _drawn(edges: Before) -> Iterator[tuple[str, int]]:
    before = direct(edges)
    below = _Tree(before).below
    left = [("", "", _ROOT)]
    while left:
        stem, margin, step = left.pop()
        if step != _ROOT:
            yield _cut(stem), step
        branches = below[step]
        joins = [one for one in branches if len(before[one]) > 1]
        follows = branches if len(branches) == 1 else joins[-1:]
        branches = [one for one in branches if one not in follows]
        entries = [(f"{margin}├─ ", f"{margin}│  ", one) for one in branches]
        if entries and not follows:
            entries[-1] = (f"{margin}└─ ", f"{margin}   ", branches[-1])
        entries += [(margin, margin, one) for one in follows]
        left += reversed(entries)


def _cut(stem: str) -> str:
    return stem if len(stem) <= _STEM_MAX else f"…{stem[1 - _STEM_MAX :]}"


class _Tree:
    """The tree of dominators of a graph without circles.

    Each node has a link that jumps over many: the last node that two have in common is
    found in steps that grow with the logarithm of their depth.
    """

    def __init__(self, before: Before) -> None:
        self._above = {_ROOT: _ROOT}
        self._jump = {_ROOT: _ROOT}
        self._depth = {_ROOT: 0}
        self.below: defaultdict[int, list[int]] = defaultdict(list)
        """In order, as of `in_order`."""
        for step in in_order(before):
            first, *others = before[step] or (_ROOT,)
            for other in others:
                first = self._meeting(first, other)
            self._add(step, first)

    def _add(self, step: int, above: int) -> None:
        far = self._jump[above]
        depth = self._depth
        is_even = depth[above] - depth[far] == depth[far] - depth[self._jump[far]]
        self._above[step] = above
        self._jump[step] = self._jump[far] if is_even else above
        self._depth[step] = depth[above] + 1
        self.below[above].append(step)

    def _meeting(self, one: int, other: int) -> int:
        """Return the lowest node that two stand below, or are."""
        low, high = sorted((one, other), key=self._depth.__getitem__, reverse=True)
        while self._depth[low] > self._depth[high]:
            jump = self._jump[low]
            is_near = self._depth[jump] >= self._depth[high]
            low = jump if is_near else self._above[low]
        while low != high:
            jumps = self._jump[low], self._jump[high]
            is_above = jumps[0] == jumps[1]
            low, high = (self._above[low], self._above[high]) if is_above else jumps
        return low
