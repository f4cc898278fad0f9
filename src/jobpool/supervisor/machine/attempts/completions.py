"""Completions: attempts whose end is reported only once the store has answered.

Those whose handler called `complete`, until the store says whether that stands; and
those whose arguments did not fit, until it says whether they are left to others.

Theory of operation. A completed job was settled in the handler's own transaction, and
only the database knows whether that was committed. So the supervisor settles such an
attempt as a failure: the store skips it if the completion stands, and accepts it if
not. The event waits for that answer.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jobpool.core.jobs.job import JobState, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.slot import Assigned
from jobpool.supervisor.machine.state.step import Step


class Completions:
    """The ends that wait for the store's answer.

    Args:
        step: shared by all parts of the machine.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._held: dict[int, tuple[Assigned, str, Settlement]] = {}

    def hold(self, job: Assigned, slot_name: str, settlement: Settlement) -> Settlement:
        """Keep a completed attempt; return its settlement, marked as completed."""
        marked = msgspec.structs.replace(settlement, completed=True)
        self._held[settlement.token] = (job, slot_name, marked)
        return marked

    def keep(self, job: Assigned, slot_name: str, settlement: Settlement) -> None:
        """Keep an attempt whose arguments did not fit."""
        self._held[settlement.token] = (job, slot_name, settlement)

    def settled(
        self,
        completed: Iterable[int],
        accepted: Iterable[int],
        stale: Iterable[int],
        handed_on: Iterable[int] = (),
    ) -> None:
        """Report how the attempts ended, now that the store has answered.

        Args:
            completed: tokens whose completion stands.
            accepted: tokens whose completion was never committed, or whose job's
                arguments fit no supervisor.
            handed_on: tokens whose job's arguments may fit another supervisor.
            stale: tokens that were superseded; they are not reported.
        """
        for token in stale:
            self._held.pop(token, None)
        for token in handed_on:
            self._report_unfit(token)
        for token in completed:
            self._report(token, stands=True)
        for token in accepted:
            self._report(token, stands=False)

    def _report_unfit(self, token: int) -> None:
        held = self._held.pop(token, None)
        if held is not None:
            job, slot_name, settlement = held
            self._step.report(
                notices.job_unfit(self._step.now_ms, job, slot_name, settlement)
            )

    def _report(self, token: int, *, stands: bool) -> None:
        held = self._held.pop(token, None)
        if held is None:
            return
        job, slot_name, settlement = held
        if stands:
            settlement = msgspec.structs.replace(
                settlement, state=JobState.SUCCEEDED, outcome=Outcome.SUCCEEDED
            )
        step = self._step
        step.report(notices.attempt_ended(step, job, slot_name, settlement))
