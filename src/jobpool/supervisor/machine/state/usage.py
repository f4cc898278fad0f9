"""Usage: what ended attempts have used, kept as counts until they are written.

Theory of operation. A success adds two numbers to lists of its kind; now and then a
list is turned into counts of its sketch (`core.rules.usage.sketch`), many numbers at
once. So a job costs well below a microsecond here, and nothing in the store. The loop
adds and the store thread takes: a lock is between them.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from itertools import islice
from typing import NamedTuple

from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.usage.sketch import Measure, buckets_of
from jobpool.store.records.reading import SketchRow
from jobpool.supervisor.machine.state.usual_memory import UsualMemory

_FOLD = 256
"""So many attempts of a kind wait to be counted."""
_UNMEASURED = frozenset({Outcome.LOST})
_BY_ITSELF = frozenset({Outcome.SUCCEEDED, Outcome.FAILED})
"""Any other end came before the attempt had used all that it needed."""

_Place = tuple[str, str]
"""A kind and its pool."""
_Key = tuple[str, str, Measure, int]


class _Waiting(NamedTuple):
    """What attempts have used that are not counted yet."""

    peaks_bytes: list[float]
    durations_s: list[float]


def _nothing() -> _Waiting:
    return _Waiting([], [])


class Usage:
    """The counts of one supervisor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: defaultdict[_Place, _Waiting] = defaultdict(_nothing)
        """What is not counted yet."""
        self._attempts: Counter[_Key] = Counter()
        self._censored: Counter[_Key] = Counter()
        self.memory = UsualMemory()
        """What the loop needs of it at once."""

    def succeeded(
        self,
        kind: str,
        pool: str,
        peaks_bytes: Collection[int],
        durations_s: Collection[float],
    ) -> None:
        """Add attempts of one kind that have returned."""
        place = kind, pool
        self.memory.succeeded(place, peaks_bytes)
        with self._lock:
            waiting = self._waiting[place]
            waiting.peaks_bytes.extend(peaks_bytes)
            waiting.durations_s.extend(durations_s)
            if len(waiting.peaks_bytes) >= _FOLD:
                self._count(place, waiting)
                del self._waiting[place]

    def ended(
        self,
        kind: str,
        pool: str,
        outcome: Outcome,
        evidence: Evidence,
        limit_bytes: int,
    ) -> None:
        """Add any other end of an attempt.

        Args:
            kind: its kind.
            pool: its pool.
            outcome: how it ended.
            evidence: what it had used by then.
            limit_bytes: its memory limit.
        """
        if outcome in _UNMEASURED:
            return
        peak_bytes, duration_s = evidence.peak_rss_bytes, evidence.duration_s
        if outcome is Outcome.OUT_OF_MEMORY:
            peak_bytes = limit_bytes  # a kill is late by chance
        used = (
            (Measure.MEMORY, peak_bytes or 0),
            (Measure.DURATION, 1000.0 * (duration_s or 0.0)),
        )
        censored = outcome not in _BY_ITSELF
        with self._lock:
            for measure, value in used:
                if value <= 0:
                    continue
                bucket = buckets_of([value])[0]
                key = (kind, pool, measure, bucket)
                self._attempts[key] += 1
                self._censored[key] += censored
                if measure is Measure.MEMORY:
                    self.memory.ended((kind, pool), bucket, censored=censored)

    def take(self, limit: int) -> list[SketchRow]:
        """Return counts that are not written yet, and forget them; for any thread.

        Args:
            limit: most rows.
        """
        with self._lock:
            for place, waiting in self._waiting.items():
                self._count(place, waiting)
            self._waiting.clear()
            keys = list(islice(self._attempts, limit))
            return [
                SketchRow(
                    kind=kind,
                    pool=pool,
                    measure=measure,
                    bucket=bucket,
                    attempts=self._attempts.pop((kind, pool, measure, bucket)),
                    censored=self._censored.pop((kind, pool, measure, bucket), 0),
                )
                for kind, pool, measure, bucket in keys
            ]

    def put_back(self, rows: Iterable[SketchRow]) -> None:
        """Add counts that could not be written; for any thread."""
        with self._lock:
            for row in rows:
                key = (row.kind, row.pool, row.measure, row.bucket)
                self._attempts[key] += row.attempts
                self._censored[key] += row.censored

    def _count(self, place: _Place, waiting: _Waiting) -> None:
        # A child's peaks are often the same; durations never are, but their buckets.
        peaks = Counter(waiting.peaks_bytes)
        durations_ms = [1000.0 * one for one in waiting.durations_s]
        for measure, counts in (
            (Measure.MEMORY, zip(buckets_of(peaks), peaks.values(), strict=True)),
            (Measure.DURATION, Counter(buckets_of(durations_ms)).items()),
        ):
            for bucket, attempts in counts:
                self._attempts[*place, measure, bucket] += attempts
