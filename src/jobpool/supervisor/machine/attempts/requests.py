"""Requests to quotas' services, as running handlers say that they ended.

They are summed by bucket and attempt, and given to the store once a second: a breaker
needs no more, and a bucket that each request wrote to would be a hot row. What breaks
off in that second, with the supervisor or the store, is not counted: that is a second
of a statistic, and a probe that nothing is heard of is followed by another.
"""

from __future__ import annotations

from jobpool.core.jobs.job import RequestReport
from jobpool.sandbox.protocol.messages import RequestEnded
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.state.slot import NEVER_S
from jobpool.supervisor.machine.state.step import Step

REPORT_S = 1.0
"""A supervisor reports so often, if there is anything."""
SUMS_MAX = 10_000
"""Buckets of attempts that are counted between two reports; a child may name any."""


class Requests:
    """Sums what attempts say of their requests.

    Args:
        step: shared by all parts of the machine.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._sums: dict[tuple[str, str, int], tuple[int, int]] = {}
        """Requests and failures, by quota, value and token."""
        self._due_s = NEVER_S

    def note(self, frame: RequestEnded) -> None:
        """Count one, if its quota has a breaker."""
        registry = self._step.registry
        quota = registry.quotas.get(frame.quota) if registry else None
        if quota is None or quota.breaker is None:
            return
        by = frame.quota, frame.value, frame.token
        if by not in self._sums and len(self._sums) >= SUMS_MAX:
            return
        requests, failures = self._sums.get(by, (0, 0))
        self._sums[by] = requests + 1, failures + frame.failed
        if self._due_s == NEVER_S:
            # A supervisor that ends may not have a second.
            self._due_s = self._step.now_s + (0 if self._step.ending else REPORT_S)
        self._step.wake_at(self._due_s)

    def keep_time(self) -> None:
        """Report if it is time, and set the wake-up for the next report."""
        if self._due_s <= self._step.now_s or (self._sums and self._step.ending):
            self._due_s = NEVER_S
            sums, self._sums = self._sums, {}
            self._step.out.append(
                cmd.ReportRequests(
                    [RequestReport(*by, *counts) for by, counts in sums.items()],
                    self._step.now_ms,
                )
            )
        self._step.wake_at(self._due_s)
