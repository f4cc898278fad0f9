"""The caps that each supervisor counts alone (``scope="host"``), and who holds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

AT_START = 0
"""The number of what a job takes when it begins; `permit()` counts from one."""


class Places:
    """What running attempts hold of quotas that the store knows nothing of.

    Attributes:
        caps: how much there is of each such quota; one that is not in it has no cap.
    """

    def __init__(self) -> None:
        self.caps: Mapping[str, int] = {}
        self._used: defaultdict[str, int] = defaultdict(int)
        self._held: dict[int, dict[tuple[str, int], int]] = {}
        """By token: costs, by quota and number."""

    def __bool__(self) -> bool:
        """Say whether anybody holds anything."""
        return bool(self._held)

    def has_room(self, quota: str, cost: int) -> bool:
        """Say whether so much more of a quota is free."""
        cap = self.caps.get(quota)
        return cap is None or self._used[quota] + cost <= cap

    def holds(self, token: int, quota: str, n: int = AT_START) -> bool:
        """Say whether an attempt holds this."""
        return (quota, n) in self._held.get(token, ())

    def take(self, token: int, quota: str, cost: int, n: int = AT_START) -> None:
        """Let an attempt hold so much of a quota, whether there is room or not."""
        self._held.setdefault(token, {})[quota, n] = cost
        self._used[quota] += cost

    def give_back(self, token: int, quota: str, n: int) -> None:
        """Take back what an attempt holds under a number, if it does."""
        held = self._held.get(token, {})
        self._used[quota] -= held.pop((quota, n), 0)
        if not held:
            self._held.pop(token, None)

    def end(self, token: int) -> frozenset[str]:
        """Take back all that an attempt holds; return the quotas."""
        held = self._held.pop(token, {})
        for (quota, _n), cost in held.items():
            self._used[quota] -= cost
        return frozenset(quota for quota, _n in held)
