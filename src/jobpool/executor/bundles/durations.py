"""How long calls of each function took lately; decides which travel together."""

from __future__ import annotations

from collections import OrderedDict

QUICK_S = 0.0005
"""Calls that take longer on the average travel by themselves."""
OVERHEAD_S = 0.00004
"""What a call costs in a bundle beside its own time."""
SAMPLES_MIN = 8
FUNCTIONS_MAX = 256
"""The one that was not heard of for the longest time is forgotten."""
_WEIGHT = 1 / 8
_DEATH_S = 1.0
"""A death counts as so long: some fifty quick calls by themselves make up for it."""
_UNKNOWN = (_DEATH_S, 0)


class Speeds:
    """The mean duration of each function's calls, the recent ones weighing most."""

    def __init__(self) -> None:
        self._means: OrderedDict[int, tuple[float, int]] = OrderedDict()

    def took(self, function: int, duration_s: float) -> None:
        """Add a call's duration."""
        mean_s, count = self._means.pop(function, (duration_s, 0))
        mean_s += (duration_s - mean_s) * _WEIGHT
        self._means[function] = mean_s, count + 1
        if len(self._means) > FUNCTIONS_MAX:
            self._means.popitem(last=False)

    def died(self, function: int) -> None:
        """Its process died: for a while it travels by itself."""
        self._means.pop(function, None)
        self._means[function] = _DEATH_S, 1

    def cost_s(self, function: int) -> float | None:
        """Return what a call of it takes in a bundle; None: it travels by itself."""
        mean_s, count = self._means.get(function, _UNKNOWN)
        if count < SAMPLES_MIN or mean_s > QUICK_S:
            return None
        return mean_s + OVERHEAD_S
