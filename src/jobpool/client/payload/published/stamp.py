"""What quotas count a job by, and its lane, for jobs from the shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.core.rules.quotas.lanes import lane_id, values_of
from jobpool.errors import ArgumentsRejected, UsageError


class Stamp:
    """Stamps jobs of one kind, as an application does when it enqueues them.

    Args:
        needs: the kind's, as published.
        quotas: by name, as published.
        defaults: of arguments that may be left out, by name.
    """

    def __init__(
        self,
        needs: Sequence[Need],
        quotas: Mapping[str, Quota],
        defaults: Mapping[str, Any],
    ) -> None:
        self._needs = needs
        self._quotas = quotas
        self._defaults = defaults

    def on(self, job: NewJob, given: Mapping[str, Any], what: str) -> NewJob:
        """Return a job with what it counts by, and its lane.

        Args:
            job: without these.
            given: its arguments by name, as they are stored.
            what: where they come from, for error messages.

        Raises:
            ArgumentsRejected: a quota counts by a value that it cannot count by.
        """
        if not self._needs:
            return job
        try:
            values = values_of(self._needs, self._quotas, {**self._defaults, **given})
        except UsageError as exc:
            raise ArgumentsRejected(f"{what}: {exc}") from None
        lane = lane_id(job.pool, job.kind, job.priority, job.tenant, values)
        return replace(job, quota_values=values or None, lane=lane)
