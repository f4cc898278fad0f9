"""The host's store: in memory, and it reports finished jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import FINISHED, Settlement
from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.jobs import LeaseBatch, Receipt


class HostStore(MemoryStore):
    """A store in memory that reports finished jobs and deletes them.

    Each object belongs to one thread: its notes on a transaction have no lock.

    Args:
        database: shared with the thread that enqueues.
        run_root: where the supervisor keeps its run directory, and is woken.
        ended: called after the commit with the settlements that finished a job, and how
            many attempts each has had.
    """

    def __init__(
        self,
        database: MemoryDatabase,
        run_root: Path,
        ended: Callable[[Sequence[tuple[Settlement, int]]], None],
    ) -> None:
        super().__init__(
            database,
            clock=SystemClock(),
            admission=Admission(),
            run_root=run_root,
        )
        self._ended = ended
        self._finished: list[Settlement] = []
        self._again: dict[int, int] = {}
        """By job, of those that died before: their current attempt."""
        self._depth = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Store.transaction`; the jobs it finished are reported at its end."""
        self._depth += 1
        try:
            with super().transaction():
                yield
        except BaseException:
            self._finished.clear()
            raise
        finally:
            self._depth -= 1
        if not self._depth:
            self._report()

    def lease(
        self,
        run_id: str,
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
        *,
        suspects: bool = True,
        alone: bool = False,
        ahead: Mapping[str, int] | None = None,
        slow_s: float = 0.0,
    ) -> LeaseBatch:
        """See `Store.lease`."""
        batch = super().lease(
            run_id,
            wanted,
            kinds,
            suspects=suspects,
            alone=alone,
            ahead=ahead,
            slow_s=slow_s,
        )
        for lease in batch.leases:
            if lease.attempt > 1:
                self._again[lease.id] = lease.attempt
        return batch

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        """See `Store.settle`."""
        with self._session.writing:
            receipts = super().settle(settlements)
            self._finished += [
                settlement
                for settlement, receipt in zip(settlements, receipts, strict=True)
                if receipt is Receipt.ACCEPTED and self._is_finished(settlement.id)
            ]
        if not self._depth:
            self._report()
        return receipts

    def _is_finished(self, job_id: int) -> bool:
        """Say whether the stored job is finished: one to be retried may be canceled."""
        row = self._database.jobs.get(job_id)
        return row is not None and row.state in FINISHED

    def _report(self) -> None:
        if self._finished:
            ends = [(one, self._again.pop(one.id, 1)) for one in self._finished]
            self._finished.clear()
            self.forget(settlement.id for settlement, _attempts in ends)
            self._ended(ends)
