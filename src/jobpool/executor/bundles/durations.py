"""Recent durations of each function's calls: they decide what is bundled. Pure."""

from __future__ import annotations

from collections import OrderedDict

QUICK_S = 0.0005
"""Calls of a function with a longer mean are sent by themselves."""
OVERHEAD_S = 0.00004
"""What a call in a bundle costs besides its own time."""
SAMPLES_MIN = 8
FUNCTIONS_MAX = 256
"""Beyond this, the least recently used one is forgotten."""
_WEIGHT = 1 / 8
_DEATH_S = 1.0
"""A death counts as a call this long: some fifty quick calls make up for it."""
_UNKNOWN = (_DEATH_S, 0)


class Durations:
    """The mean duration of each function's calls, weighted towards recent ones."""

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
        """Note that a call's process died: for a while its calls are not bundled."""
        self._means.pop(function, None)
        self._means[function] = _DEATH_S, 1

    def cost_s(self, function: int) -> float | None:
        """Return how long a call takes in a bundle; None: it must not be bundled."""
        mean_s, count = self._means.get(function, _UNKNOWN)
        if count < SAMPLES_MIN or mean_s > QUICK_S:
            return None
        return mean_s + OVERHEAD_S
