"""What a handler decides of its own end: what it adds, and that it completes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from jobpool.core.jobs.flow import ADDED_MAX, ADDED_MAX_BYTES
from jobpool.core.jobs.job import NewJob
from jobpool.errors import UsageError


class OwnEnd:
    """What one attempt's handler has decided so far.

    Args:
        is_member: its job is a flow's.

    Attributes:
        completed: `complete` has written; the transaction may still be open.
    """

    __slots__ = ("_added", "_added_bytes", "_completing", "_is_member", "completed")

    def __init__(self, *, is_member: bool) -> None:
        self.completed = False
        self._completing = False
        self._is_member = is_member
        self._added: list[NewJob] = []
        self._added_bytes = 0

    def add(self, jobs: Sequence[NewJob]) -> None:
        """Keep members that are to be stored if the attempt succeeds.

        Raises:
            UsageError: the job is in no flow, `complete` has written, or they are too
                many or too large; none of them was added.
        """
        if not self._is_member:
            raise UsageError(
                "current().flow: this job is in no flow, so that nothing can be added "
                "to its step; nothing was added. handler.enqueue(...) makes a job of "
                "its own"
            )
        if self._completing:
            raise UsageError(
                "current().flow: complete() was called, which ends this job in a "
                "transaction of yours; nothing was added"
            )
        size_bytes = sum(len(msgspec.msgpack.encode(job)) for job in jobs)
        size_bytes += self._added_bytes
        count = len(self._added) + len(jobs)
        if count > ADDED_MAX or size_bytes > ADDED_MAX_BYTES:
            raise UsageError(
                f"current().flow: one attempt adds at most {ADDED_MAX:,} jobs that "
                f"take {ADDED_MAX_BYTES:,} bytes, this would be at least {count:,} "
                f"and {size_bytes:,}; nothing of this call was added. Add jobs "
                "that add the others"
            )
        self._added += jobs
        self._added_bytes = size_bytes

    def added(self) -> list[NewJob]:
        """Return what is to be added, now that the attempt has succeeded."""
        return [] if self.completed else self._added

    def complete(self, write: Callable[[], None]) -> None:
        """Settle the attempt as succeeded in a transaction of the handler's.

        Args:
            write: does so; what it raises is raised, and nothing was written.

        Raises:
            UsageError: called twice, or after something was added; nothing was written.
        """
        if self._completing:
            raise UsageError(
                "complete() was called before in this attempt; call it once, as the "
                "last thing before the commit"
            )
        if self._added:
            raise UsageError(
                "complete() does not go with current().flow: what was added is stored "
                "with the end of the attempt, and not in your transaction; nothing was "
                "written"
            )
        self._completing = True
        try:
            write()
            self.completed = True
        finally:
            self._completing = self.completed
