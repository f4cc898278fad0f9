"""How long attempts took lately, and what that allows.

Kinds that end within 2 ms may be sent ahead to a child. An attempt that ends within a
tenth of a second frees its slot soon: the slot's next job may be leased already. Of
kinds that take longer, one of many running attempts ends soon.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

FAST_S = 0.002
"""A kind whose jobs end sooner than this may be sent ahead."""
BRISK_S = 0.1
"""A slot whose attempt ends sooner than this is as good as free."""
AHEAD_MAX = 64
"""Most jobs that may wait in a child."""
AHEAD_S = 0.032
"""Work that may wait in a child, roughly: many jobs if they take next to nothing, so
that child and supervisor seldom wait for each other, or take turns on one core."""
AHEAD_BYTES = 2**20
"""Most bytes of results of the jobs that wait there, roughly: all of them may come
before the first is written."""
BRIEFEST_S = 0.0001
"""What an attempt costs its slot at least, however soon its handler returns."""
LATE_TIMES = 1.5
"""An attempt that takes so many times longer than nearly all others is late."""
_SAMPLES = 32
_EVALUATE_EVERY = 8


class Durations:
    """The recent attempts of a kind, or of a pool.

    Attributes:
        fast: nearly all of them ended within `FAST_S`, and so did the last one.
        brisk: the same for `BRISK_S`.
        p95_s: nearly all of them took less.
    """

    __slots__ = (
        "_ahead",
        "_count",
        "_is_known",
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
        self._is_known = False
        self._ahead = 0
        self._largest_bytes = 0
        """The largest of their results lately; 0: all are small."""

    @property
    def ahead(self) -> int:
        """How many jobs may wait in a child behind one of these attempts."""
        return self._ahead if self.fast else int(self.brisk)

    @property
    def usual_s(self) -> float | None:
        """What nearly all attempts took at most; None: too few are known."""
        return self.p95_s if self._is_known else None

    @property
    def late_s(self) -> float:
        """After how long it cannot be foreseen any more when an attempt ends."""
        return BRISK_S if self.brisk else LATE_TIMES * self.p95_s

    def ends_within(self, seconds: float) -> float:
        """Return how likely it is that an attempt ends in so much time; 0: unknown."""
        return min(1.0, seconds / self.p95_s) if self._is_known else 0.0

    def took(self, durations_s: Sequence[float]) -> None:
        """Add the durations of attempts, in order.

        One slow attempt makes the kind slow at once, until all are evaluated again.
        """
        self._count += len(durations_s)
        not_evaluated = self._count % _EVALUATE_EVERY
        seen = len(durations_s) - not_evaluated
        if seen > 0:  # of several evaluations only the last one counts
            self._recent.extend(durations_s[:seen])
            self._evaluate()
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
        """Note the size of a large result; older sizes fade."""
        self._largest_bytes = max(size_bytes, self._largest_bytes)
        self._ahead = min(self._ahead, self._fitting)

    @property
    def _fitting(self) -> int:
        if not self._largest_bytes:
            return AHEAD_MAX
        return min(AHEAD_MAX, AHEAD_BYTES // self._largest_bytes)

    def _evaluate(self) -> None:
        ranked, self._is_known = sorted(self._recent), True
        self.p95_s = ranked[int(0.95 * (len(ranked) - 1))]
        self.fast = self.p95_s < FAST_S
        self.brisk = self.p95_s < BRISK_S
        self._largest_bytes //= 2
        self._ahead = min(self._fitting, int(AHEAD_S / max(self.p95_s, BRIEFEST_S)))
