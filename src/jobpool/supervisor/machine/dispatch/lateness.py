"""Kinds whose jobs go back again and again: none begins in the time its rate allows."""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.core.events.flow import RateTooTight
from jobpool.supervisor.machine.state.slot import Assigned
from jobpool.supervisor.machine.state.step import Step

ROW_TIMES = 20
ROW_S = 30.0
"""So often and for so long, with none begun between: that is no hiccup of the store."""
AGAIN_S = 600.0


class Lateness:
    """Counts how often jobs of a kind were late in a row, and reports it.

    Args:
        step: shared by all parts of the machine.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._rows: dict[str, tuple[int, float]] = {}
        """How often jobs were late since one has begun, and since when; by kind."""
        self._quiet_until_s: dict[str, float] = {}

    def begun(self, kind: str) -> None:
        """A job of this kind begins."""
        self._rows.pop(kind, None)

    def were_late(self, jobs: Iterable[Assigned]) -> None:
        """These go back; those of one kind count once."""
        step = self._step
        timed = {
            job.lease.kind: (job.begin_by_s - within_s, within_s)
            for job in jobs
            if (within_s := job.lease.begin_within_s) is not None
        }
        for kind, (asked_s, within_s) in timed.items():
            times, since_s = self._rows.get(kind, (0, step.now_s))
            self._rows[kind] = times + 1, since_s
            if (
                times + 1 < ROW_TIMES
                or step.now_s < since_s + ROW_S
                or step.now_s < self._quiet_until_s.get(kind, 0.0)
            ):
                continue
            self._quiet_until_s[kind] = step.now_s + AGAIN_S
            step.report(
                RateTooTight(
                    at_ms=step.now_ms,
                    kind=kind,
                    late_s=round(step.now_s + step.slept_s - asked_s, 3),
                    begin_within_s=within_s,
                )
            )
