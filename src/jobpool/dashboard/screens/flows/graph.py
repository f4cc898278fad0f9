"""A flow's steps as a picture: boxes with what became of their jobs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from jobpool.core.jobs.flow import StepState, When
from jobpool.core.jobs.job import JobState
from jobpool.dashboard.rendering import duration
from jobpool.dashboard.screens.flows.folding import Group, folded, ranks_of
from jobpool.dashboard.screens.flows.layout import Edge, Point, Sizes, laid_out
from jobpool.store.records.flows import StepRow
from jobpool.words.figures import counted_many
from jobpool.words.flows.critical import critical_path
from jobpool.words.flows.order import direct
from jobpool.words.flows.words import (
    BAD,
    SKIPPED,
    Tally,
    begins_words,
    count_words,
    state_word,
    tally,
    took_s,
)

SIZES = Sizes(width=152, height=46, across=44, down=14, bend=8, margin=6)
_BAR_WIDTH = SIZES.width - 24
_BAR_LEAST = 3.0
"""Pixels: one death among a million is seen."""
_PARTS = (
    ((JobState.SUCCEEDED,), "ended"),
    (BAD, "bad"),
    ((SKIPPED,), "skipped"),
    ((JobState.LEASED,), "running"),
)
"""From left to right; the rest is to come."""
_WORST = ("failed", "asks", "running", "ready", "closed", "done", "skipping", "skipped")
"""A box looks like the first of these that one of its steps is."""
_PREFIX_LEAST = 3


class Part(msgspec.Struct, frozen=True):
    """A part of a bar."""

    look: str
    left: float
    width: float


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A step, or several that share a box."""

    left: float
    top: float
    look: str
    """The word for its state."""
    title: str
    words: str
    """What became of it, shortly."""
    whole: str
    """The same in full."""
    bar: tuple[Part, ...] = ()
    """Empty: it has one job, or none."""
    job: int | None = None
    """Its only job."""
    is_critical: bool = False
    is_hook: bool = False
    is_folded: bool = False


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An edge."""

    path: str
    """As SVG writes it."""
    look: str
    """``plain``, ``failed`` (it holds if the first fails), ``finished``."""
    is_critical: bool = False


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The picture."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    folded: int
    """Steps that have no box of their own."""


def graph_of(steps: Sequence[StepRow], now_ms: int, *, whole: bool = False) -> Graph:
    """Return the picture of a flow; hooks stand in a rank of their own, at the end.

    Args:
        steps: all of them.
        now_ms: the store's clock, or one that is near it.
        whole: as of `folded`.
    """
    plain = {one.number: one for one in steps if one.hook is None}
    hooks = [one for one in steps if one.hook is not None]
    before = {one.number: [n for n, _ in one.after] for one in plain.values()}
    looks = {number: state_word(one) for number, one in plain.items()}
    groups = folded(before, looks, whole=whole)
    edges = _edges(plain, before, groups)
    ranks = _ranks(groups, edges)
    last = 1 + max(ranks.values(), default=-1)
    ranks |= dict.fromkeys((one.number for one in hooks), last)
    picture = laid_out(ranks, sorted(edges), SIZES)
    path = [one.number for one in critical_path(steps)]
    critical = set(path)
    boxes = [
        _box([plain[one] for one in group], picture.boxes[group[0]], critical, now_ms)
        for group in groups
    ]
    boxes += [_box([one], picture.boxes[one.number], critical, now_ms) for one in hooks]
    of_path = _on_path(path, groups)
    return Graph(
        width=picture.width,
        height=picture.height,
        boxes=tuple(boxes),
        lines=tuple(
            Line(
                path=_curve(points),
                look=edges[edge],
                is_critical=edge in of_path,
            )
            for edge, points in picture.edges.items()
        ),
        folded=sum(len(group) for group in groups if len(group) > 1),
    )


def _edges(
    plain: Mapping[int, StepRow],
    before: Mapping[int, Sequence[int]],
    groups: Sequence[Group],
) -> dict[Edge, str]:
    """Return the edges between boxes; those that only repeat others are left out."""
    box = {step: group[0] for group in groups for step in group}
    needed = direct(before)
    found: dict[Edge, str] = {}
    for number, step in plain.items():
        for other, when in step.after:
            edge = box[other], box[number]
            is_plain = when is When.SUCCEEDED
            if edge[0] == edge[1] or (is_plain and other not in needed[number]):
                continue
            look = "plain" if is_plain else when.value
            found[edge] = look if found.get(edge, look) == look else "plain"
    return found


def _ranks(groups: Sequence[Group], edges: Collection[Edge]) -> dict[int, int]:
    above: dict[int, list[int]] = {group[0]: [] for group in groups}
    for first, last in edges:
        above[last].append(first)
    return ranks_of(above)


def _on_path(path: Sequence[int], groups: Sequence[Group]) -> set[Edge]:
    box = {step: group[0] for group in groups for step in group}
    return {(box[one], box[other]) for one, other in pairwise(path)}


def _box(
    steps: Sequence[StepRow], at: Point, critical: Collection[int], now_ms: int
) -> Box:
    jobs = tally(steps)
    total = sum(jobs.values())
    first = steps[0]
    is_alone = len(steps) == 1
    look = min(map(state_word, steps), key=_WORST.index)
    return Box(
        left=at[0],
        top=at[1],
        look=look,
        title=first.name if is_alone else _common(steps),
        words=_words(first, jobs, now_ms) if is_alone else _states(steps),
        whole=". ".join(_whole(steps, jobs)),
        bar=tuple(_bar(jobs)) if total > 1 else (),
        job=first.first_job if is_alone and total == 1 else None,
        is_critical=any(one.number in critical for one in steps),
        is_hook=first.hook is not None,
        is_folded=not is_alone,
    )


def _common(steps: Sequence[StepRow]) -> str:
    """Return what several steps are called together."""
    names = {one.name for one in steps}
    low, high = min(names), max(names)
    same = next(
        (n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low)
    )
    prefix = low if len(names) == 1 else low[:same].rstrip(" 0123456789-_.:/#")
    if len(prefix) < _PREFIX_LEAST:
        return counted_many(len(steps), "step")
    return f"{len(steps):,} \N{MULTIPLICATION SIGN} {prefix}"


def _words(step: StepRow, jobs: Tally, now_ms: int) -> str:
    """Return a step's state, or how many of its jobs have ended, and its time."""
    total = sum(jobs.values())
    word = {"asks": "waits for approval", "closed": "not yet"}.get(
        state_word(step), state_word(step)
    )
    if total > 1 and step.state in (StepState.READY, StepState.DONE):
        ended = sum(jobs.get(one, 0) for one in (JobState.SUCCEEDED, *BAD, SKIPPED))
        word = f"{ended:,} of {total:,}"
    took = took_s(step, now_ms)
    return word if took is None else f"{word} · {duration(took)}"


def _states(steps: Sequence[StepRow]) -> str:
    states = Counter(map(state_word, steps))
    if len(states) == 1:
        return f"all {next(iter(states))}"
    return ", ".join(f"{count:,} {state}" for state, count in states.most_common())


def _whole(steps: Sequence[StepRow], jobs: Tally) -> Iterator[str]:
    first = steps[0]
    if len(steps) == 1:
        yield f"Step {first.number} {first.name}: {state_word(first)}"
        if begins := begins_words(first):
            yield begins[0].upper() + begins[1:]
    else:
        yield f"{_common(steps)}: {_states(steps)}"
    if jobs:
        yield count_words(jobs)


def _bar(jobs: Tally) -> Iterator[Part]:
    total = sum(jobs.values())
    counts = [
        (look, sum(jobs.get(one, 0) for one in states)) for states, look in _PARTS
    ]
    shares = [
        (look, max(_BAR_LEAST, _BAR_WIDTH * count / total))
        for look, count in counts
        if count
    ]
    over = max(1.0, sum(width for _, width in shares) / _BAR_WIDTH)
    left = 0.0
    for look, width in shares:
        yield Part(look, round(left, 1), round(width / over, 1))
        left += width / over


def _curve(points: Sequence[Point]) -> str:
    """Return a line through points that leaves and arrives level."""
    (x, y), *rest = points
    parts = [f"M{x:g} {y:g}"]
    for at, (to_x, to_y) in enumerate(rest):
        if at % 2:  # it passes a rank
            parts.append(f"H{to_x:g}")
        else:
            middle = (x + to_x) / 2
            parts.append(f"C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
    return "".join(parts)
