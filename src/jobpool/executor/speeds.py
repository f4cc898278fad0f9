"""How long calls of each function took lately; decides how many travel together."""

from __future__ import annotations

from collections import OrderedDict

from jobpool.executor.tray import CALLS_MAX

BUNDLE_S = 0.015
"""A bundle is made to take so long: what each costs the host is little beside it."""
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

    def together(self, function: int, within_s: float = BUNDLE_S) -> int:
        """Return how many of its calls may make a bundle; 1: none.

        Args:
            function: what they call.
            within_s: all of them shall have begun by then.
        """
        mean_s, count = self._means.get(function, (_DEATH_S, 0))
        if count < SAMPLES_MIN or mean_s > QUICK_S:
            return 1
        bundle_s = min(BUNDLE_S, within_s)
        return max(1, min(CALLS_MAX, int(bundle_s / (mean_s + OVERHEAD_S))))
