"""What is asked of a store about flows, besides reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from jobpool.core.jobs.flow import EnqueuedFlow, NewFlow
from jobpool.core.jobs.job import NewJob
from jobpool.store.records.flows import Folded


class FlowKeeping(Protocol):
    """Flows come in, go on, and are changed by people."""

    def enqueue_flow(
        self,
        flow: NewFlow,
        members: Iterable[tuple[int, NewJob]],
        connection: Any = None,
        *,
        wakes: bool = False,
    ) -> EnqueuedFlow:
        """Store a flow with its members, all or nothing; durable once this returns.

        More than `FLOW_AT_ONCE` members are stored in several transactions. Nothing of
        the flow begins, and nobody is shown it, before the last.

        Args:
            flow: its steps and edges.
            members: each after the number of its step; consumed once, also if there is
                such a flow. An external step has just one.
            connection: as of `enqueue`; then at most `FLOW_AT_ONCE` members.
            wakes: likewise.

        Returns:
            The flow that was stored, or the one with the same name and key that is
            there, as it is.

        Raises:
            UsageError: the flow could never end or is too large, a member has an option
                that goes with no flow, or the connection cannot be used.
            QueueFull: as many jobs wait as may wait.
            FeatureHeldBack: supervisors are running that do not know flows.
            StoreUnavailable: somebody else has begun to store a flow with this key; or
                the store cannot be reached. Of all these, nothing was stored.
            OutcomeUnknown: the last commit failed such that it may or may not be.
        """
        ...

    def fold(self, limit: int = 1000) -> Folded:
        """Do what follows from members that have ended, at most *limit* of each kind.

        `lease` does so as well. Without anything to do it is one cheap query.
        """
        ...

    def cancel_flow(self, flow_id: int) -> bool:
        """Cancel what has not ended of a flow; what runs is asked to stop.

        Its hooks for failure and for any end begin once that has ended.

        Returns:
            False: no plain step of it is left, it is canceled already, or there is
            none; nothing was changed.
        """
        ...

    def pause_flow(self, flow_id: int) -> bool:
        """Let nothing more of a flow begin; what runs goes on, also by retries.

        Delays and expiries of what has not begun stand still. The time of an external
        step does not.

        Returns:
            False: it is not open, or is ending; nothing was changed.
        """
        ...

    def resume_flow(self, flow_id: int) -> bool:
        """Let a paused flow go on; False: it is not paused."""
        ...

    def retry_flow(self, flow_id: int, jobs: Sequence[int] = ()) -> bool:
        """Let a flow go on, in its next generation, from what of it has failed.

        Members that are dead, quarantined or canceled of steps that were begun have
        fresh counters, as `revive` gives them. All that came after these steps, or was
        skipped since the flow was ending, waits again: its members are replaced by new
        ones, also those that have succeeded; but what members have added while they ran
        is dropped, if these run again. Hooks run again, at the new end. Delays and
        expiries count for nothing.

        Args:
            flow_id: which.
            jobs: of those that have failed only these begin anew, and what was left out
                since the flow was ending; then it may be open or paused as well. Empty:
                all of a flow that has ended.

        Returns:
            False: it has not ended and no jobs are named, nothing of it has failed or
            was left out, or there is none; nothing was changed.

        Raises:
            UsageError: a member has not ended, or one after those runs, or was erased;
                one that is named has not failed; it is being canceled; or more than
                `RETRIED_MAX` members would begin anew. Nothing was changed.
        """
        ...

    def approve(
        self, job_id: int, result: bytes | None = None, codec: str | None = None
    ) -> bool:
        """End the member of an external step, as succeeded.

        Args:
            job_id: the member.
            result: JSON, which has passed through *codec*; None: null.
            codec: as in `NewJob`.

        Returns:
            False: it has ended already; nothing was changed.

        Raises:
            UsageError: it is no external step's, or steps before it have not ended;
                nothing was changed.
        """
        ...
