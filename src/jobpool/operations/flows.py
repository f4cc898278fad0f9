"""What is done to flows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.store.protocol import Store


class _OfOne(Action, frozen=True, kw_only=True):
    """Done to one flow."""

    flow: int

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"flow": self.flow}


class CancelFlow(_OfOne, frozen=True, kw_only=True):
    """Cancel what has not ended of a flow; its hooks for failures and ends run."""

    name = "flows cancel"

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(is_made=store.cancel_flow(self.flow))


class PauseFlow(_OfOne, frozen=True, kw_only=True):
    """Let nothing more of a flow begin; what runs goes on."""

    name = "flows pause"

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(is_made=store.pause_flow(self.flow))


class ResumeFlow(_OfOne, frozen=True, kw_only=True):
    """Undo the pause of a flow."""

    name = "flows resume"

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(is_made=store.resume_flow(self.flow))


class RetryFlow(_OfOne, frozen=True, kw_only=True):
    """Let a flow go on from what of it failed, in its next generation."""

    name = "flows retry"
    jobs: tuple[int, ...] = ()
    """Of what failed, only these; the flow need not have ended. Empty: all."""

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: self._retry(store)

    def _retry(self, store: Store) -> Change:
        is_made = store.retry_flow(self.flow, self.jobs)
        return Change(is_made=is_made, ids=self.jobs)


class Approve(Action, frozen=True, kw_only=True):
    """End a step that waits for somebody. Its result is not in the trail."""

    name = "flows approve"
    job: int
    """Its one member."""
    result: bytes | None = None
    """JSON, encoded if there is a codec; None: null."""
    codec: str | None = None

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: self._approve(store)

    def _approve(self, store: Store) -> Change:
        is_made = store.approve(self.job, self.result, self.codec)
        return Change(is_made=is_made, jobs=int(is_made), ids=[self.job])
