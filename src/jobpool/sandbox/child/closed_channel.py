"""The channel of a process that runs no attempt: `core.application.current.Channel`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jobpool.core.application.step_results import MemberResult
from jobpool.core.jobs.flow import EnqueuedFlow, NewFlow
from jobpool.core.jobs.job import Enqueued, Job, NewJob
from jobpool.errors import UsageError


class ClosedChannel:
    """The channel of a process that runs no attempt: it refuses, with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Refuse.

        Raises:
            UsageError: always; nothing was enqueued.
        """
        raise UsageError(f"cannot enqueue {len(jobs)} jobs: {self._reason}")

    def enqueue_flow(
        self, flow: NewFlow, members: Iterable[tuple[int, NewJob]]
    ) -> EnqueuedFlow:
        """Refuse.

        Raises:
            UsageError: always; nothing was enqueued.
        """
        del members
        raise UsageError(f"cannot enqueue flow {flow.name!r}: {self._reason}")

    def read(self, job_id: int) -> Job | None:
        """Refuse.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"job {job_id} cannot be read: {self._reason}")

    def step_results(
        self, numbers: Sequence[int] | None, after_id: int
    ) -> Sequence[MemberResult]:
        """Refuse.

        Raises:
            UsageError: always.
        """
        del numbers, after_id
        raise UsageError(f"results of a flow cannot be read: {self._reason}")

    def add_members(self, jobs: Sequence[NewJob]) -> None:
        """Refuse.

        Raises:
            UsageError: always; nothing was added.
        """
        raise UsageError(f"cannot add {len(jobs)} jobs to a flow: {self._reason}")

    def beat(self, progress: Any, checkpoint: Any) -> None:
        """Refuse.

        Raises:
            UsageError: always.
        """
        del progress, checkpoint
        raise UsageError(f"no attempt is running: {self._reason}")

    def complete(self, connection: Any, result: Any) -> None:
        """Refuse.

        Raises:
            UsageError: always.
        """
        del connection, result
        raise UsageError(f"no attempt is running: {self._reason}")

    def claim(self) -> None:
        """Return None: there is no attempt."""

    def ask_permit(
        self, quota: str, value: str, cost: int, wait_s: float | None
    ) -> int:
        """Refuse.

        Raises:
            UsageError: always.
        """
        del value, cost, wait_s
        raise UsageError(f"no permit of {quota} can be taken: {self._reason}")

    def permit_answer(self, n: int, wait_s: float) -> None:
        """Refuse.

        Raises:
            UsageError: always.
        """
        del n, wait_s
        raise UsageError(f"no permit can be taken: {self._reason}")

    def return_permit(self, n: int) -> None:
        """Do nothing: what the attempt held was returned with its end."""

    def block_bucket(self, quota: str, value: str, after_s: float) -> None:
        """Refuse.

        Raises:
            UsageError: always.
        """
        del value, after_s
        raise UsageError(f"{quota} cannot be held back: {self._reason}")

    def report_request(self, quota: str, value: str, *, failed: bool) -> None:
        """Do nothing: what comes after the attempt's end is not counted."""

    def stopping(self) -> bool:
        """Return False: nothing runs that could be stopped."""
        return False
