"""How long attempts took lately, and what that allows.

What ends within 2 ms may be sent ahead to its child. What ends within a tenth of a
second leaves its slot free soon, and the slot's next job may be leased by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

FAST_S = 0.002
"""A kind whose jobs end sooner than this may be sent ahead."""
BRISK_S = 0.1
"""A slot whose attempt ends sooner than this is as good as free."""
AHEAD_MAX = 64
"""Jobs that may wait in a child, at most."""
AHEAD_S = 0.032
"""About so much work may wait there: of what takes next to nothing many, so that a
child and its supervisor seldom wait for each other, or run in turns on one core."""
AHEAD_BYTES = 2**20
"""The ends of what waits there take about so much, at most: all may come before the
first is written."""
BRIEFEST_S = 0.0001
"""Every attempt costs its slot so much, however soon its handler returns."""
_SAMPLES = 32
_LOOK_EVERY = 8


class Durations:
    """The recent attempts of a kind, or of a pool.

    Attributes:
        fast: nearly all of them ended within `FAST_S`, and so did the last one.
        brisk: the same for `BRISK_S`.
        p95_s: what nearly all of them stayed below.
    """

    __slots__ = (
        "_ahead",
        "_count",
        "_largest_bytes",
        "_recent",
        "brisk",
        "fast",
        "p95_s",
    )

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_SAMPLES)
        self._count = 0
        self.fast = False
        self.brisk = False
        self.p95_s = BRISK_S
        self._ahead = 0
        self._largest_bytes = 0
        """Of their ends, lately; 0: they are small."""

    @property
    def ahead(self) -> int:
        """How many jobs may wait in a child behind one of these."""
        return self._ahead if self.fast else int(self.brisk)

    def took(self, durations_s: Sequence[float]) -> None:
        """Add the durations of attempts, one after another.

        One slow attempt ends the haste at once, until the next look at all of them.
        """
        self._count += len(durations_s)
        since_look = self._count % _LOOK_EVERY
        seen = len(durations_s) - since_look
        if seen > 0:  # of several looks only the last one counts
            self._recent.extend(durations_s[:seen])
            self._look()
            durations_s = durations_s[seen - 1 :]
            self._recent.extend(durations_s[1:])
        else:
            self._recent.extend(durations_s)
        slowest_s = max(durations_s)
        if slowest_s >= FAST_S:
            self.fast = False
            if slowest_s >= BRISK_S:
                self.brisk = False

    def returned(self, size_bytes: int) -> None:
        """Note the size of a large end; what was long ago fades."""
        self._largest_bytes = max(size_bytes, self._largest_bytes)
        self._ahead = min(self._ahead, self._fitting)

    @property
    def _fitting(self) -> int:
        if not self._largest_bytes:
            return AHEAD_MAX
        return min(AHEAD_MAX, AHEAD_BYTES // self._largest_bytes)

    def _look(self) -> None:
        ranked = sorted(self._recent)
        self.p95_s = ranked[int(0.95 * (len(ranked) - 1))]
        self.fast = self.p95_s < FAST_S
        self.brisk = self.p95_s < BRISK_S
        self._largest_bytes //= 2
        self._ahead = min(self._fitting, int(AHEAD_S / max(self.p95_s, BRIEFEST_S)))
