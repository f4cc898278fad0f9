"""Takes back what other runs held that have died, on systems without supervisors.

Theory of operation. On Linux that is the reclaimer's, as for every supervisor. On other
systems only `jobpool dev` runs jobs, in one process each. Such a run is dead when its
process is, and what it held was running: it leases nothing ahead. A process is known by
its number and by when it began (`sandbox.system.platform`). On a store that hosts share
nothing is known of another host's process, and its leases end by time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.sandbox.system.platform import has_ended
from jobpool.store.protocol import Store
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.maintenance.lost_jobs import settle_all, take_back
from jobpool.supervisor.storage.inbox import Chore, Posts
from jobpool.supervisor.storage.thread import StoreThread

EVERY_S = 1.0


class Neighbours(threading.Thread):
    """Looks for dead runs regularly, and takes their jobs back.

    Args:
        own: this process's run.
        store: does what is the store's; must have been opened.
        registry: the kinds' policies.
        may_take: whether runs that seem to have expired really have.
        on_first_check: a chore, left behind the first check.
        clock: for the times of events.
        details: all that is known of what they held is reported (`Step`).
    """

    def __init__(
        self,
        own: Run,
        *,
        store: StoreThread,
        registry: Registry,
        may_take: Callable[[], bool],
        on_first_check: Chore,
        clock: Clock,
        details: bool = False,
    ) -> None:
        super().__init__(name="jobpool-neighbours", daemon=True)
        self._own = own
        self._store = store
        self._registry = registry
        self._may_take = may_take
        self._on_first_check = on_first_check
        self._clock = clock
        self._details = details
        self._closing = threading.Event()

    def run(self) -> None:
        """Look until closed."""
        self._store.chore(self._look)
        self._store.chore(self._on_first_check)
        while not self._closing.wait(EVERY_S):
            self._store.chore(self._look)

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def _look(self, store: Store) -> Posts:
        """Take back what dead runs hold; a chore."""
        posts: list[inp.SupervisorEvent | Event] = []
        now_ms = self._clock.utc_ms()
        others = [run for run in store.open_runs() if run.id != self._own.id]
        dead = [run for run in others if self._has_died(run)]
        living = [run.id for run in others if run not in dead] + [self._own.id]
        for run in dead:
            taken = take_back(
                store,
                run,
                running=None,
                registry=self._registry,
                now_ms=now_ms,
                living=living,
                details=self._details,
            )
            posts += taken.posts(run, now_ms)
        if self._store.shared and self._may_take():
            for run in store.expired_runs():
                if run.id != self._own.id and run not in dead:
                    posts += self._take_expired(store, run, now_ms)
        return posts

    def _has_died(self, run: Run) -> bool:
        """Say so only if it can be known here.

        On a store of one host every run is of this one, whose name may have changed.
        """
        is_here = not self._store.shared or run.host == self._own.host
        has_number = not run.pid_namespace  # as systems without /proc give it
        return is_here and has_number and has_ended(run.pid, run.started_at_ms)

    def _take_expired(self, store: Store, run: Run, now_ms: int) -> Posts:
        with store.transaction():
            if not store.seize(run.id, by=self._own.id):
                return ()
            taken = settle_all(
                store,
                run,
                running=None,
                registry=self._registry,
                now_ms=now_ms,
                details=self._details,
            )
        store.wake()
        return taken.posts(run, now_ms, presumed=True)
