"""Attempts of whose end people hear only once the store has answered.

Those whose handler called `complete`, until the store says whether it stands; and those
whose arguments did not fit, until it says whether they may fit somebody else.

Theory of operation. The job was settled in the handler's own transaction, and only
the database knows whether that was committed. The supervisor therefore settles such
an attempt as a failure: the store passes over it if the completion stands, and
accepts it if it does not. What people are told waits for that answer.
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
    """The claimed ends that wait for the store's answer.

    Args:
        step: shared by all parts of the machine.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._held: dict[int, tuple[Assigned, str, Settlement]] = {}

    def hold(self, job: Assigned, slot_name: str, settlement: Settlement) -> Settlement:
        """Keep what there is to say of an end; return the settlement, marked."""
        marked = msgspec.structs.replace(settlement, completed=True)
        self._held[settlement.token] = (job, slot_name, marked)
        return marked

    def keep(self, job: Assigned, slot_name: str, settlement: Settlement) -> None:
        """Keep what there is to say of a job whose arguments did not fit."""
        self._held[settlement.token] = (job, slot_name, settlement)

    def settled(
        self,
        completed: Iterable[int],
        accepted: Iterable[int],
        stale: Iterable[int],
        handed_on: Iterable[int] = (),
    ) -> None:
        """Say how claimed attempts ended, now that the store has answered.

        Args:
            completed: tokens whose completion stands.
            accepted: tokens whose completion was never committed, or whose job's
                arguments fit nobody.
            handed_on: tokens whose job's arguments may fit somebody else.
            stale: tokens that were superseded; nothing is to be said of them.
        """
        for token in stale:
            self._held.pop(token, None)
        for token in handed_on:
            self._say_unfit(token)
        for token in completed:
            self._say(token, stands=True)
        for token in accepted:
            self._say(token, stands=False)

    def _say_unfit(self, token: int) -> None:
        held = self._held.pop(token, None)
        if held is not None:
            job, slot_name, settlement = held
            self._step.say(
                notices.job_unfit(self._step.now_ms, job, slot_name, settlement)
            )

    def _say(self, token: int, *, stands: bool) -> None:
        held = self._held.pop(token, None)
        if held is None:
            return
        job, slot_name, settlement = held
        if stands:
            settlement = msgspec.structs.replace(
                settlement, state=JobState.SUCCEEDED, outcome=Outcome.SUCCEEDED
            )
        step = self._step
        step.say(notices.attempt_ended(step.now_ms, job, slot_name, settlement))
