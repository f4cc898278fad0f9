"""The report that waits to be written, and how long the store takes to commit."""

from __future__ import annotations

from collections import deque

import msgspec

from jobpool.core.rules.run_report import RunReport, StoreReport
from jobpool.store.protocol import Store

ALONE_AFTER_S = 5.0
"""So long it waits for other things that are to be written."""

COMMITS = 256
"""So many are looked at to say how long they take."""


class PendingReport:
    """The newest report, until a transaction that there is anyway has written it."""

    def __init__(self) -> None:
        self._report: RunReport | None = None
        self._since_s = float("-inf")
        """Since when it waits; the first one waits for nothing."""
        self._has_written = False

    def take(self, report: RunReport | None, now_s: float) -> None:
        """Take a report, instead of the one that waits."""
        if report is not None:
            if self._report is None and self._has_written:
                self._since_s = now_s
            self._report = report

    def write(self, store: Store, run_id: str) -> RunReport | None:
        """Write it, within the open transaction, and return it; None: there is none."""
        if self._report is not None:
            store.put_report(run_id, self._report)
        return self._report

    def written(self, report: RunReport | None) -> None:
        """The transaction was committed."""
        if report is not None:
            self._has_written = True
        if self._report is report:
            self._report = None

    def is_overdue(self, now_s: float) -> bool:
        """Say whether it has waited too long."""
        return self._report is not None and now_s >= self._since_s + ALONE_AFTER_S


class Commits:
    """How long the last transactions took."""

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=COMMITS)

    def took(self, seconds: float) -> None:
        """Add one."""
        self._took_s.append(seconds)

    def added_to(self, told: StoreReport) -> StoreReport:
        """Return what a store tells of its load with their times, and forget them."""
        if not self._took_s:
            return told
        times_ms = sorted(1000 * took_s for took_s in self._took_s)
        self._took_s.clear()
        last = len(times_ms) - 1
        added: StoreReport = msgspec.structs.replace(
            told,
            commit_p50_ms=round(times_ms[last // 2], 1),
            commit_p99_ms=round(times_ms[round(0.99 * last)], 1),
        )
        return added
