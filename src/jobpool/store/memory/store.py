"""MemoryStore: the whole Store protocol on one process's memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobpool.core.clock import Clock
from jobpool.core.jobs.job import Settlement
from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.memory.flows.keeping import FlowKeeping
from jobpool.store.memory.operators.alerting import Alerting
from jobpool.store.memory.operators.operate import Operating
from jobpool.store.memory.read import Reading
from jobpool.store.memory.runs import RunKeeping
from jobpool.store.memory.schedules import ScheduleKeeping
from jobpool.store.memory.settle import Settling
from jobpool.store.operations.producers.admission import Entrance
from jobpool.store.records.runs import CapacityFact
from jobpool.store.wakeup import Waker


class MemoryStore(
    Settling, RunKeeping, ScheduleKeeping, Reading, Operating, FlowKeeping, Alerting
):
    """A store in memory. Thread-safe; refused in a forked child.

    Args:
        database: the state; store objects with the same one share it.
        clock: decides what is due.
        admission: how many jobs may wait before more are refused.
        run_root: where supervisors keep their run directories, with wake-up FIFOs.
    """

    def __init__(
        self,
        database: MemoryDatabase,
        *,
        clock: Clock,
        admission: Admission,
        run_root: Path,
    ) -> None:
        self._database = database
        self._session = Session(database)
        self._clock = clock
        self._entrance = Entrance(admission, clock.monotonic_s)
        self._run_root = run_root
        self._waker = Waker(run_root)
        self._waker_lock = threading.Lock()
        self._seen: int | None = None

    @property
    def url(self) -> str:
        """See `Store.url`; no store can be opened by it."""
        return self._database.url

    @property
    def one_host(self) -> bool:
        """See `Store.one_host`: it is even one process."""
        return True

    @property
    def run_root(self) -> Path:
        """See `Store.run_root`."""
        return self._run_root

    def close(self) -> None:
        """See `Store.close`; the jobs stay in the database."""
        self._session.close()
        with self._waker_lock:
            self._waker.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Store.transaction`."""
        with self._session.writing:
            yield

    def changed(self) -> bool:
        """See `Store.changed`."""
        with self._session.reading:
            by_others = self._database.commits - self._session.commits
            is_new = by_others != self._seen
            self._seen = by_others
        return is_new

    def interrupt(self) -> None:
        """See `Store.interrupt`: there is nothing to wait for."""

    def wake(self) -> None:
        """See `Store.wake`."""
        self._session.check()
        with self._waker_lock:
            self._waker.wake()

    def store_part(self, settlement: Settlement) -> bool:
        """See `Store.store_part`: there is no disk to wait for."""
        del settlement
        return False

    def scrub(self, after_id: int | None) -> int | None:
        """See `Store.scrub`: no other program can write here."""
        del after_id
        return None

    def damaged_rows(self) -> Sequence[str]:
        """See `Store.damaged_rows`."""
        return ()

    def tidy(self, *, waited_for: bool = False) -> None:
        """See `Store.tidy`: nothing is deferred."""
        del waited_for

    def capacity(self, memory_bytes: int) -> list[CapacityFact]:
        """See `Store.capacity`: it is this process's memory."""
        del memory_bytes
        return []

    def concerns(self) -> list[str]:
        """See `Store.concerns`: there are none."""
        return []

    def describe(self) -> dict[str, str]:
        """See `Store.describe`."""
        with self._session.reading:
            return {
                "process": str(self._database.process_id),
                "jobs": str(len(self._database.jobs)),
                "unfinished": str(self._database.jobs.unfinished),
                "stale_settlements": str(self._database.stale),
            }
