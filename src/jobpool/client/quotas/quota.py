"""Quota: a limit that kinds and requests share, as an application uses it."""

from __future__ import annotations

from typing import NamedTuple

from jobpool.client.quotas.permit import Bucket, Headers, Permit, report
from jobpool.client.quotas.running import running_call
from jobpool.core.application.current import Channel, channel, current
from jobpool.core.rules.quotas import definition
from jobpool.core.rules.quotas.definition import TENANT, check_need
from jobpool.core.rules.quotas.lanes import counted_value
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import ConfigError, UsageError


class Quota:
    """A limit that kinds and requests share. Made by ``jobs.quota``.

    Named in ``quotas=[...]`` of a handler, each of its jobs takes a permit when it
    begins. ``with quota.permit():`` takes one for each request.

    Args:
        definition: what was declared.
        owner: the quotas of its application.
    """

    __slots__ = ("_owner", "definition")

    def __init__(self, definition: definition.Quota, owner: object) -> None:
        self.definition = definition
        self._owner = owner

    def __repr__(self) -> str:
        return f"<Quota {self.name}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    def cost(self, cost: int) -> Cost:
        """Return it for ``quotas=[...]``, with more than one permit for each job.

        Args:
            cost: how many; at most the quota's cap and burst.
        """
        return Cost(self, cost)

    def permit(
        self,
        cost: int = 1,
        *,
        wait: DurationLike | None = None,
        value: str | int | None = None,
    ) -> Permit:
        """Return a permit for one request: ``with`` or ``async with`` takes it.

        It waits until the quota has one; if that takes too long, it raises `Snooze`:
        the attempt costs nothing, all that it holds is free, and the job is called
        again once there may be a permit.

        What counts against a cap is free at the end of the block; what counts against a
        rate is used.

        Args:
            cost: how many permits the request counts as.
            wait: the longest wait; None: the quota's own, 5 s by default.
            value: which bucket, if the quota counts by something; None: the running
                job's own.

        Raises:
            UsageError: no job is running here; its ``quotas=`` name this quota already;
                the quota can never have so many; it is of another `JobPool`; or it
                counts by an argument that the running job does not have. Nothing is
                held. It is raised here or when the block begins.
        """
        try:
            check_need(self.definition, cost, "permit()")
            wait_s = None if wait is None else duration_s(wait, "permit(): wait")
        except ConfigError as exc:
            raise UsageError(f"{exc}; nothing is held") from None
        return Permit(self, cost, wait_s, lambda: self._bucket(value))

    def answered(
        self,
        status: int,
        headers: Headers | None = None,
        *,
        value: str | int | None = None,
    ) -> None:
        """Say how a request was answered, in a job whose ``quotas=`` name this quota.

        As `Permit.answered`, for a job that has its permit since it began.

        Args:
            status: the HTTP status.
            headers: the answer's headers.
            value: which bucket, as for `permit`.

        Raises:
            Throttled: the answer asks for patience. The bucket is blocked.
            UsageError: no job is running here, or as for `permit`; nothing is blocked.
        """
        report(self._way("answered"), self, self.value_here(value), status, headers)

    def failed(self, *, value: str | int | None = None) -> None:
        """Say that a request has failed, in a job whose ``quotas=`` name this quota.

        As `Permit.failed`, for a job that has its permit since it began.

        Args:
            value: which bucket, as for `permit`.

        Raises:
            UsageError: no job is running here, or as for `permit`.
        """
        self._way("failed").report_request(
            self.name, self.value_here(value), failed=True
        )

    def _way(self, what: str) -> Channel:
        way = channel()
        if way is None:
            raise UsageError(
                f"{what}() of {self.name!r} works only inside a handler that jobpool "
                "runs; nothing is blocked or counted. When you call a handler directly "
                "(in a test), use jobpool.testing.running() around the call"
            )
        return way

    def is_of(self, owner: object) -> bool:
        """Say whether an application's quotas include it."""
        return self._owner is owner

    def value_here(self, value: str | int | None = None) -> str:
        """Return which of its buckets is meant, as text; "" if it has one.

        Args:
            value: what it counts by; None: what the running job is counted by.

        Raises:
            UsageError: the running job does not have that, or this quota is of another
                application.
        """
        per = self.definition.per
        call = running_call()
        if call is not None and not self.is_of(call.owner):
            raise UsageError(
                f"quota {self.name!r} belongs to another JobPool than {call.kind}, "
                "whose supervisor knows nothing of it; declare it with jobs.quota(...) "
                "of the same one"
            )
        if per is None or value is not None:
            return "" if per is None else counted_value(value, "value")
        if per == TENANT:
            return "" if channel() is None else counted_value(current().tenant)
        if call is None:  # in a test that calls the function itself
            return ""
        try:
            return call.value(per.removeprefix(definition.ARGUMENTS))
        except UsageError as exc:
            raise UsageError(
                f"quota {self.name!r} counts by {per}, but {exc}; say which bucket, "
                f"such as permit(value=...)"
            ) from None

    def _bucket(self, value: str | int | None) -> Bucket:
        call = running_call()
        if call is not None and self.name in call.held:
            raise UsageError(
                f"quota {self.name!r} is named in quotas= of {call.kind}: the job has "
                "its permit since it began, and would wait for a second one. Leave one "
                "of the two out; nothing was taken"
            )
        return Bucket(self.name, self.value_here(value))


class Cost(NamedTuple):
    """A quota, and how many permits of it each job of a kind takes."""

    quota: Quota
    cost: int
