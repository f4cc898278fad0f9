"""Lays out a graph without circles in ranks, from left to right.

Theory of operation (Sugiyama, Tagawa and Toda, Methods for Visual Understanding of
Hierarchical System Structures, 1981). A box stands one rank behind the last of those
before it. An edge over several ranks gets a bend in each rank between, which takes up
room as a thin box does, so that edges go around boxes. Each rank is sorted by the mean
place of the neighbours in the rank before, then after it, and so on; the order with
the fewest crossings is kept. At last the heights: each box goes as near to the mean of
its neighbours as its rank's order and distances let it, in the sense of least squares
(pool adjacent violators). Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

_ROUNDS = 8
_EMPTY_GAP = 6.0

Point = tuple[float, float]
Edge = tuple[int, int]
"""From a box to a later one."""


class Sizes(NamedTuple):
    """How large things are, in pixels."""

    width: float
    """Of a box."""
    height: float
    across: float
    """Between ranks."""
    down: float
    """Between boxes of a rank."""
    bend: float
    """The height that an edge takes up where it passes a rank."""
    margin: float


class Picture(NamedTuple):
    """Where everything is."""

    width: float
    height: float
    boxes: Mapping[int, Point]
    """The upper left corner of each."""
    edges: Mapping[Edge, Sequence[Point]]
    """The points of each, from the right side of a box to the left side of another;
    where it passes a rank, two points at the same height."""


class _Node(NamedTuple):
    """A box, or a bend of an edge."""

    box: int
    """The box, or where the edge begins."""
    to: int = -1
    """Where the edge leads; -1: it is a box."""
    rank: int = 0
    """Of a bend."""


def laid_out(ranks: Mapping[int, int], edges: Sequence[Edge], sizes: Sizes) -> Picture:
    """Return where boxes and edges are.

    Args:
        ranks: of all boxes, from 0; a rank may be empty.
        edges: each once, from a lower to a higher rank.
        sizes: of what is drawn.
    """
    graph = _Graph(ranks, edges)
    order = _Order(graph).best()
    heights = _heights(graph, order, sizes)
    top = min((heights[one] - _half(one, sizes) for one in heights), default=0.0)
    low = max((heights[one] + _half(one, sizes) for one in heights), default=0.0)
    step = sizes.width + sizes.across

    def left(rank: int) -> float:
        return sizes.margin + rank * step

    def height(node: _Node) -> float:
        return round(heights[node] - top + sizes.margin, 1)

    boxes = {
        box: (left(rank), round(height(_Node(box)) - sizes.height / 2, 1))
        for box, rank in ranks.items()
    }
    lines: dict[Edge, list[Point]] = {}
    for edge in edges:
        first, last = edge
        points = [(left(ranks[first]) + sizes.width, height(_Node(first)))]
        for rank in range(ranks[first] + 1, ranks[last]):
            at = height(_Node(first, last, rank))
            points += [(left(rank), at), (left(rank) + sizes.width, at)]
        points.append((left(ranks[last]), height(_Node(last))))
        lines[edge] = points
    last_rank = max(ranks.values(), default=0)
    return Picture(
        width=left(last_rank) + sizes.width + sizes.margin,
        height=round(low - top + 2 * sizes.margin, 1),
        boxes=boxes,
        edges=lines,
    )


def _half(node: _Node, sizes: Sizes) -> float:
    return (sizes.height if node.to < 0 else sizes.bend) / 2


class _Graph:
    """Boxes and bends by rank, with their neighbours one rank before and after."""

    def __init__(self, ranks: Mapping[int, int], edges: Sequence[Edge]) -> None:
        self.ranks: list[list[_Node]] = [
            [] for _ in range(1 + max(ranks.values(), default=-1))
        ]
        self.before: defaultdict[_Node, list[_Node]] = defaultdict(list)
        self.after: defaultdict[_Node, list[_Node]] = defaultdict(list)
        for box in sorted(ranks):
            self.ranks[ranks[box]].append(_Node(box))
        for first, last in edges:
            bends = [
                _Node(first, last, rank)
                for rank in range(ranks[first] + 1, ranks[last])
            ]
            for bend in bends:
                self.ranks[bend.rank].append(bend)
            for one, other in pairwise([_Node(first), *bends, _Node(last)]):
                self.after[one].append(other)
                self.before[other].append(one)


class _Order:
    """The order of each rank, and how many edges cross."""

    def __init__(self, graph: _Graph) -> None:
        self._graph = graph
        self._ranks = [list(rank) for rank in graph.ranks]
        self._places: dict[_Node, int] = {}
        for rank in self._ranks:
            self._place(rank)

    def best(self) -> list[list[_Node]]:
        """Return the order with the fewest crossings that was found."""
        found, fewest = self._copy(), self._crossings()
        for _ in range(_ROUNDS):
            if not fewest:
                break
            for rank in self._ranks[1:]:
                self._sort(rank, self._graph.before)
            for rank in reversed(self._ranks[:-1]):
                self._sort(rank, self._graph.after)
            crossings = self._crossings()
            if crossings < fewest:
                found, fewest = self._copy(), crossings
        return found

    def _copy(self) -> list[list[_Node]]:
        return [list(rank) for rank in self._ranks]

    def _place(self, rank: Sequence[_Node]) -> None:
        self._places.update((node, place) for place, node in enumerate(rank))

    def _sort(
        self, rank: list[_Node], neighbours: Mapping[_Node, Sequence[_Node]]
    ) -> None:
        """Sort a rank by the mean places of neighbours; who has none stays there."""
        places = self._places

        def mean(node: _Node) -> float:
            its = neighbours.get(node)
            if not its:
                return float(places[node])
            return sum(places[one] for one in its) / len(its)

        rank.sort(key=mean)
        self._place(rank)

    def _crossings(self) -> int:
        crossings = 0
        for rank in self._ranks[:-1]:
            seen: list[int] = []
            for node in rank:
                ends = sorted(self._places[one] for one in self._graph.after[node])
                for end in ends:
                    crossings += len(seen) - bisect_left(seen, end + 1)
                for end in ends:
                    insort(seen, end)
        return crossings


def _heights(
    graph: _Graph, order: Sequence[Sequence[_Node]], sizes: Sizes
) -> dict[_Node, float]:
    """Return the height of the middle of each node."""
    offsets = [_offsets(rank, sizes) for rank in order]
    heights = {
        node: offset - rank_offsets[-1] / 2
        for rank, rank_offsets in zip(order, offsets, strict=True)
        for node, offset in zip(rank, rank_offsets, strict=True)
    }
    ways = list(zip(order, offsets, strict=True))
    for turn in range(_ROUNDS):
        down = turn % 2 == 0
        neighbours = graph.before if down else graph.after
        for rank, its in ways if down else reversed(ways):
            _settle(rank, its, neighbours, heights)
    return heights


def _offsets(rank: Sequence[_Node], sizes: Sizes) -> list[float]:
    """Return how far below the first each node of a rank is at least."""
    found = [0.0] if rank else []
    for one, other in pairwise(rank):
        are_boxes = one.to < 0 and other.to < 0
        gap = sizes.down if are_boxes else _EMPTY_GAP
        found.append(found[-1] + _half(one, sizes) + gap + _half(other, sizes))
    return found


def _settle(
    rank: Sequence[_Node],
    offsets: Sequence[float],
    neighbours: Mapping[_Node, Sequence[_Node]],
    heights: dict[_Node, float],
) -> None:
    """Move the nodes of a rank towards their neighbours, in order and apart."""
    blocks: list[tuple[float, float, int]] = []
    """Sum of wishes, their weight, nodes: of nodes that stand as near as they may."""
    for node, offset in zip(rank, offsets, strict=True):
        its = neighbours.get(node)
        wish = sum(heights[one] for one in its) / len(its) if its else heights[node]
        # Bends are straight rather than boxes in the middle; who has no neighbour
        # there makes room.
        weight = (1.0 if node.to < 0 else 4.0) if its else 0.1
        total, count = (wish - offset) * weight, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / weight:
            other_total, other_weight, other_count = blocks.pop()
            total += other_total
            weight += other_weight
            count += other_count
        blocks.append((total, weight, count))
    means = (total / weight for total, weight, count in blocks for _ in range(count))
    for node, offset, mean in zip(rank, offsets, means, strict=True):
        heights[node] = mean + offset
