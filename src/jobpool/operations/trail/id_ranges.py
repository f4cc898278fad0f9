"""Ids as a short text: ``1-500,502``, and whether it names one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

RANGES_MAX = 50
"""More become one wide range, which may hold others: ``~510-9000``."""
_ABOUT = "~"
_NUMBER = re.compile(r"[0-9]{1,19}")


class IdRanges:
    """Ids, in batches; usually each batch has higher ones than the last."""

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []
        self._about: list[int] = []
        """The wide range that holds the rest, if there are too many."""

    def add(self, ids: Iterable[int]) -> None:
        """Add a batch."""
        for one in sorted(ids):
            last = self._ranges[-1] if self._ranges else None
            if last is not None and last[0] <= one <= last[1] + 1:
                last[1] = max(last[1], one)
            elif len(self._ranges) < RANGES_MAX:
                self._ranges.append([one, one])
            else:
                seen = (*self._about, one)
                self._about = [min(seen), max(seen)]

    def __str__(self) -> str:
        """Return them as text; "" if there are none."""
        parts = [
            f"{first}" if first == last else f"{first}-{last}"
            for first, last in self._ranges
        ]
        if self._about:
            first, last = self._about
            parts.append(f"{_ABOUT}{first}-{last}")
        return ",".join(parts)


def names(text: str, job_id: int) -> bool | None:
    """Say whether such a text names an id; None: it may."""
    found: bool | None = False
    for part in text.split(","):
        for first, last in ranges(part):
            if first <= job_id <= last:
                if not part.startswith(_ABOUT):
                    return True
                found = None
    return found


def ranges(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first and last id of each range in such a text, wide ones as well."""
    for part in text.split(","):
        first, _, last = part.removeprefix(_ABOUT).partition("-")
        if _NUMBER.fullmatch(first) and (not last or _NUMBER.fullmatch(last)):
            yield int(first), int(last or first)
