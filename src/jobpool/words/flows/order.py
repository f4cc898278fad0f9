"""The order of steps that come after each other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError

Before = Mapping[int, Collection[int]]
"""Of each step, the steps that come right before it."""


def in_order(before: Before) -> list[int]:
    """Return the steps, each behind all that come before it; else by number.

    Raises:
        graphlib.CycleError: no flow has a circle.
    """
    left = {step: len(set(its)) for step, its in before.items()}
    after: dict[int, list[int]] = {step: [] for step in before}
    for step, its in before.items():
        for one in set(its):
            after[one].append(step)
    order: list[int] = []
    ready = sorted(step for step, count in left.items() if not count)
    while ready:
        order += ready
        opened = []
        for one in ready:
            for step in after[one]:
                left[step] -= 1
                if not left[step]:
                    opened.append(step)
        ready = sorted(opened)
    if len(order) < len(before):
        circle = sorted(step for step, count in left.items() if count)
        raise CycleError("steps come after each other in a circle", circle)
    return order


def direct(before: Before) -> Before:
    """Return the edges without those that others imply.

    Of each step, all that come before it are the bits of a number: a flow of 10,000
    steps takes some megabytes, and no time.
    """
    order = in_order(before)
    bits = {step: 1 << place for place, step in enumerate(order)}
    above: dict[int, int] = {}
    found = {}
    for step in order:
        implied = 0
        for one in before[step]:
            implied |= above[one]
        found[step] = [one for one in before[step] if not implied & bits[one]]
        above[step] = implied
        for one in found[step]:
            above[step] |= bits[one]
    return found
