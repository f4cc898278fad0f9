"""The flow that the running job is a member of, as its handler adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol

from jobpool.core.jobs.flow import ADDED_MAX
from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.quotas.lanes import placed
from jobpool.errors import UsageError

_NOTHING = "nothing of this call was added"


class AddedCall(Protocol):
    """A call, as ``handler.call`` returns it, as far as a flow is concerned."""

    @property
    def packed(self) -> NewJob:
        """The job to store."""
        ...

    @property
    def connection(self) -> Any:
        """The caller's own connection to store it on; None: there is none."""
        ...

    @property
    def has_priority(self) -> bool:
        """Whether its options say a priority."""
        ...

    @property
    def needs(self) -> Sequence[object]:
        """The values of other steps among its arguments."""
        ...


class CurrentFlow:
    """The running job's flow. Made by ``current().flow``.

    Args:
        add: takes the members of one call, all or none.
        tenant: on whose behalf they run, if their options do not say.
        priority: theirs, likewise.
    """

    __slots__ = ("_add", "_priority", "_tenant")

    def __init__(
        self,
        add: Callable[[Sequence[NewJob]], None],
        tenant: str | None,
        priority: int,
    ) -> None:
        self._add = add
        self._tenant = tenant
        self._priority = priority

    def add(self, call: AddedCall, /) -> None:
        """Add a job to the running job's own step; see `add_many`."""
        self.add_many((call,))

    def add_many(self, calls: Iterable[AddedCall], /) -> int:
        """Add jobs to the running job's own step.

        They are stored if and when this attempt succeeds, in the commit that says so;
        what waits for the step waits for them too, and has their results. An attempt
        that fails, is killed or snoozes adds nothing, and the next one begins anew.

        Args:
            calls: calls, or a generator of them, as for ``Flow.add_many``. In one
                attempt up to 10,000, and 4 MiB with their arguments.

        Returns:
            How many they are.

        Raises:
            UsageError: this job is in no flow or has called ``complete``, they are too
                many, or a call has an option that does not go with flows. Nothing of
                this call was added.
        """
        if not isinstance(calls, Iterable):
            raise UsageError(
                "add_many: expected a list or generator of calls, such as "
                f"handler.call(...), got {type(calls).__name__}; {_NOTHING}"
            )
        jobs = [self._checked(call) for call in islice(calls, ADDED_MAX + 1)]
        self._add(jobs)
        return len(jobs)

    def _checked(self, call: AddedCall) -> NewJob:
        job = getattr(call, "packed", None)
        if not isinstance(job, NewJob):
            problem = (
                f"expected a call, such as handler.call(...), got {type(call).__name__}"
            )
        elif job.key is not None or job.unique is not None:
            problem = (
                f"key= and unique= of {job.kind} do not go with flows: what an attempt "
                "adds is stored once, whatever is repeated"
            )
        elif job.run_at_ms is not None:
            problem = (
                f"run_at= of {job.kind} does not go with flows; run_in= counts from "
                "the end of this attempt"
            )
        elif call.connection is not None:
            problem = (
                f"connection= of {job.kind} does not go with flows: it is stored when "
                "this attempt succeeds"
            )
        elif call.needs:
            problem = (
                f"{job.kind} is called with the value of a step, which is not known "
                "here; current().results() has those of the steps before this one"
            )
        else:
            tenant = self._tenant if job.tenant is None else job.tenant
            priority = job.priority if call.has_priority else self._priority
            return placed(job, tenant, priority)
        raise UsageError(f"flow: {problem}; {_NOTHING}")
