"""How attempts have ended lately, by kind."""

from __future__ import annotations

from collections import Counter, deque

from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import ENDS_WITHIN_S, KindReport

SLOTS = 12
SLOT_S = ENDS_WITHIN_S / SLOTS
_ALL = ""
_THROTTLED = "throttled"


class RecentEnds:
    """Counts over a minute, in slots that `turn` begins."""

    def __init__(self) -> None:
        self._now: Counter[tuple[str, str]] = Counter()
        self._slots: deque[Counter[tuple[str, str]]] = deque(maxlen=SLOTS)

    def succeeded(self, kind: str, attempts: int) -> None:
        """Count attempts that have returned."""
        self._now[kind, _ALL] += attempts

    def ended(self, kind: str, outcome: Outcome | None, *, throttled: bool) -> None:
        """Count any other end; one without an outcome only if a service refused."""
        if outcome is not None or throttled:
            self._now[kind, _ALL] += 1
            self._now[kind, _THROTTLED if throttled else str(outcome)] += 1

    def turn(self) -> dict[str, KindReport]:
        """Begin the next slot, and return what is known of kinds that have ended."""
        self._slots.append(self._now)
        self._now = Counter()
        sums: Counter[tuple[str, str]] = Counter()
        for slot in self._slots:
            sums.update(slot)
        return {
            kind: KindReport(
                ends_per_s=float(f"{count / (len(self._slots) * SLOT_S):.2g}"),
                timeouts=sums[kind, Outcome.TIMED_OUT],
                throttled=sums[kind, _THROTTLED],
                out_of_memory=sums[kind, Outcome.OUT_OF_MEMORY],
            )
            for (kind, what), count in sums.items()
            if what == _ALL
        }
