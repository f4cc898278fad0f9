"""How attempts have ended lately, and what they have left behind, by kind."""

from __future__ import annotations

from collections import Counter, deque

from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import ENDS_WITHIN_S, KindReport
from jobpool.supervisor.machine.state.slot import Slot

SLOTS = 12
SLOT_S = ENDS_WITHIN_S / SLOTS
WARM_JOBS = 20
"""The first jobs of a child fill its caches: what they leave behind is no leak."""
_GROWN_JOBS_LEAST = 100
_GROWN_JOBS_MOST = 10_000
"""With so many, what is known of a kind is halved: it may have been mended."""
_GROWN_LEAST_BYTES = 256
"""Less a job is no leak that anyone would notice."""
_ALL = ""
_THROTTLED = "throttled"


class RecentEnds:
    """Counts over a minute, in slots that `turn` begins."""

    def __init__(self) -> None:
        self._now: Counter[tuple[str, str]] = Counter()
        self._slots: deque[Counter[tuple[str, str]]] = deque(maxlen=SLOTS)
        self._grown_jobs: Counter[str] = Counter()
        self._grown_bytes: Counter[str] = Counter()

    def succeeded(self, kind: str, attempts: int) -> None:
        """Count attempts that have returned."""
        self._now[kind, _ALL] += attempts

    def ended(self, kind: str, outcome: Outcome | None, *, throttled: bool) -> None:
        """Count any other end; one without an outcome only if a service refused."""
        if outcome is not None or throttled:
            self._now[kind, _ALL] += 1
            self._now[kind, _THROTTLED if throttled else str(outcome)] += 1

    def left(self, slot: Slot, kind: str | None, rss_bytes: int, jobs: int = 1) -> None:
        """Note what a child has between jobs, after some of one kind.

        Args:
            slot: the child's; its count of jobs is the one from before.
            kind: the kind; None: they were of several, and nobody knows whose it is.
            rss_bytes: its memory now.
            jobs: how many have ended since the last time.
        """
        left_bytes = rss_bytes - slot.base_rss_bytes
        grown_bytes, slot.left_bytes = left_bytes - slot.left_bytes, left_bytes
        if kind is None or slot.jobs < WARM_JOBS:
            return
        self._grown_jobs[kind] += jobs
        self._grown_bytes[kind] += grown_bytes
        if self._grown_jobs[kind] > _GROWN_JOBS_MOST:
            self._grown_jobs[kind] //= 2
            self._grown_bytes[kind] //= 2

    def _grown(self, kind: str) -> int:
        """Return the bytes that a job of a kind leaves behind; 0: too few are known."""
        jobs = self._grown_jobs[kind]
        if jobs < _GROWN_JOBS_LEAST:
            return 0
        grown_bytes = self._grown_bytes[kind] / jobs
        if grown_bytes < _GROWN_LEAST_BYTES:
            return 0
        return int(float(f"{grown_bytes:.1g}"))

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
                grown_bytes=self._grown(kind),
            )
            for (kind, what), count in sums.items()
            if what == _ALL
        }
