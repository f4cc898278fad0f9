"""What is seen of flows in memory, where none can be stored yet."""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.store.records.flows import (
    FlowDetail,
    FlowFilter,
    FlowRow,
    MemberOf,
    StepResult,
)


class FlowReading:
    """The part of the store that shows flows: there are none."""

    def flows(self, which: FlowFilter, limit: int = 100) -> list[FlowRow]:
        """See `Store.flows`."""
        del which, limit
        return []

    def flow(self, flow_id: int) -> FlowDetail | None:
        """See `Store.flow`."""
        del flow_id
        return None

    def flow_of(self, job_id: int) -> MemberOf | None:
        """See `Store.flow_of`."""
        del job_id
        return None

    def step_results(
        self,
        flow_id: int,
        numbers: Sequence[int] | None,
        after_id: int = 0,
        limit: int = 1000,
    ) -> list[StepResult]:
        """See `Store.step_results`."""
        del flow_id, numbers, after_id, limit
        return []
