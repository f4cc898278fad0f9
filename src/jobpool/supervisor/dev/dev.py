"""`serve_here`: a supervisor whose handlers run in its own process, one after another.

Theory of operation. The store has a thread, as in every supervisor, and the same
keepers: schedules tick, flows go on, leases are renewed and old jobs pruned while a
handler runs. What is missing is the child. The main thread leases one job at a time,
calls its handler, and settles it by the same accounting. So nothing is isolated: limits
are said when they are passed, and only a person ends a handler, by a second Ctrl-C.

It needs nothing that only Linux has. There, its run has a directory all the same, by
which supervisors know that it is alive.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.config.kinds import refuse_unknown_kinds
from jobpool.core.config.settings import Settings
from jobpool.core.events.event import Event, Observer
from jobpool.core.events.figures import AttemptUnsuccessful
from jobpool.core.events.supervisor import (
    StoreConcern,
    SupervisorStopped,
)
from jobpool.core.formats import TOO_OLD
from jobpool.core.isolation.cgroups import Controls
from jobpool.core.rules.run_report import HostReport
from jobpool.core.version import __version__
from jobpool.errors import StoreRefused
from jobpool.sandbox.system.platform import IS_LINUX, boot_id, pid_namespace
from jobpool.store.opening import open_store
from jobpool.store.protocol import Store
from jobpool.store.records.runs import IN_ONE_PROCESS, Run
from jobpool.supervisor.dev.application import load, unload, with_all_pools
from jobpool.supervisor.dev.asking import Asking
from jobpool.supervisor.dev.attempts import Attempts
from jobpool.supervisor.dev.changes import Changes
from jobpool.supervisor.dev.limits import LimitWatch
from jobpool.supervisor.dev.loop import TURN_S, DevLoop
from jobpool.supervisor.dev.neighbours import Neighbours
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.usage import Usage
from jobpool.supervisor.maintenance.housekeeping import Housekeeping
from jobpool.supervisor.maintenance.lease_renewal import LeaseRenewal
from jobpool.supervisor.maintenance.run_entry import Upkeep, until_taken
from jobpool.supervisor.storage.inbox import Chore, Posts
from jobpool.supervisor.storage.thread import StoreThread

CLOSE_S = 10.0
EXIT_FAILED = 1


class Ended(NamedTuple):
    """How it has ended."""

    exit_code: int
    changed: Sequence[str] = ()
    """The source files for whose change it is to start anew."""


def serve_here(
    settings: Settings,
    *,
    observer: Observer,
    burst: bool = False,
    watched: Sequence[str] | None = None,
    clock: Clock | None = None,
) -> Ended:
    """Run jobs in this process until it is asked to end; call it in the main thread.

    Args:
        settings: what it is to do; of each pool only one job runs at a time.
        observer: gets the events.
        burst: end once nothing is due any more.
        watched: end as well once the application's source files or these have changed;
            None: whatever changes.
        clock: the clocks; tests bring their own.

    Raises:
        ConfigError: application and settings contradict each other.
        AppError: the application does not load.
        StoreError: the store cannot be used.
    """
    try:
        return _Dev(settings, observer, clock or SystemClock(), burst, watched).run()
    finally:
        unload()


class _Dev:
    """The parts of it."""

    def __init__(
        self,
        settings: Settings,
        observer: Observer,
        clock: Clock,
        burst: bool,  # noqa: FBT001 - only for the function above
        watched: Sequence[str] | None,
    ) -> None:
        self._observer = observer
        self._clock = clock
        run_id = uuid.uuid4().hex
        application, report = load(settings, run_id)
        self._settings = settings = with_all_pools(settings, report)
        self._report = report
        self._own = Run(
            id=run_id,
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=os.getpid(),
            pid_namespace=pid_namespace(),
            version=__version__ + IN_ONE_PROCESS,
            application=settings.app,
            pools={pool.name: pool.size_text for pool in settings.pools},
        )
        names = [pool.name for pool in settings.pools]
        changes = None if watched is None else Changes(settings, watched)
        self._watch = LimitWatch(observer.observe, clock)
        self._loop = DevLoop(
            names, observer, clock, self._watch, burst=burst, changes=changes
        )
        self._store = StoreThread(self._open, run_id, self._loop.post, clock)
        self._use = Asking(self._store)
        self._attempts = Attempts(
            application,
            settings,
            report,
            run_id=run_id,
            use=self._use,
            leave=self._store.leave,
            watch=self._watch,
            observer=observer,
            clock=clock,
        )
        self._upkeep = Upkeep(self._own, self._store, clock)
        self._upkeep.ticking.declared = report.schedules

    def run(self) -> Ended:
        """Start, run, end."""
        self._store.start()
        while not self._store.opened.wait(TURN_S):
            pass
        if self._store.error is not None:
            raise self._store.error
        keepers: list[Any] = [self._watch]
        try:
            if self._settings.kinds:
                names = self._use(lambda store: [one.kind for one in store.kinds()])
                refuse_unknown_kinds(self._settings, self._report, names)
            with (
                self._loop.signals(self._attempts.interrupt),
                _directory(self._store.run_root, self._own.id) as keep,
            ):
                keepers += self._make_keepers()
                self._watch.start()
                self._store.chore(self._until_taken(self._enter))
                self._loop.run(self._attempts, self._store)
                ended = self._leave(keepers)
                if self._upkeep.entry.may_be_open:
                    keep()
        finally:
            for keeper in keepers:
                keeper.close()
            self._store.close(CLOSE_S)
        if error := self._store.refusal or self._store.error:
            raise error
        if self._loop.outdated:
            raise StoreRefused(f"{self._settings.store}: {TOO_OLD}")
        return ended

    # -- the start and the end -----------------------------------------------------

    def _open(self) -> Store:
        settings = self._settings
        return open_store(settings.store, admission=settings.admission)

    def _open_for_renewal(self) -> Store:
        return open_store(self._settings.store, admission=self._settings.admission)

    def _make_keepers(self) -> Sequence[Any]:
        """Make the threads of maintenance: they depend on the kind of store."""
        store, clock = self._store, self._clock
        self._renewal = LeaseRenewal(
            self._own.id,
            self._settings.lease_ttl_s,
            opener=self._open_for_renewal,
            post=self._loop.post,
            on_wake=partial(self._loop.post, inp.Notified()),
            known=store.known,
            lost=store.give_up,
            clock=clock,
        )
        self._housekeeping = Housekeeping(
            self._settings,
            self._own.id,
            store=store,
            usage=Usage(),
            ticking=self._upkeep.ticking,
            other_pools=self._upkeep.other_pools,
            look=HostReport,  # of the host nothing is decided here
            clock=clock,
        )
        self._neighbours = self._make_neighbours()
        return self._renewal, self._housekeeping, self._neighbours

    def _make_neighbours(self) -> Any:
        """Make what takes back the jobs of runs that have died."""
        own, store, registry = self._own, self._store, self._attempts.registry
        common: dict[str, Any] = {
            "store": store,
            "may_take": self._renewal.may_take,
            "on_first_check": self._until_taken(self._checked),
            "details": self._observer.hears(AttemptUnsuccessful),
            "clock": self._clock,
        }
        if not IS_LINUX:
            return Neighbours(own, registry=registry, **common)
        from jobpool.supervisor.maintenance.reclaimer import (  # noqa: PLC0415 - Linux's
            Reclaimer,
        )

        return Reclaimer(own, registry=lambda: registry, post=self._loop.post, **common)

    def _enter(self, store: Store) -> Posts:
        """Enter the run in the store; a chore."""
        keepers = self._housekeeping, self._neighbours
        registry, renewal = self._attempts.registry, self._renewal
        return self._upkeep.enter(store, registry, renewal=renewal, keepers=keepers)

    def _until_taken(self, chore: Chore) -> Chore:
        return until_taken(chore, self._store.chore, lambda: not self._loop.ending)

    def _checked(self, store: Store) -> Posts:
        """Begin: what dead runs held was taken back; a chore."""
        return (*self._others(store), self._ready(), inp.Entered())

    def _others(self, store: Store) -> Iterator[Event]:
        """Yield a warning for each other run that takes jobs as well."""
        now_ms = self._clock.utc_ms()
        for run in store.open_runs():
            if run.id != self._own.id and run.lease_until_ms > now_ms:
                text = (
                    f"{run.label} takes jobs of this store as well, perhaps with other "
                    "code: what it takes does not run here"
                )
                yield StoreConcern(at_ms=now_ms, text=text)

    def _ready(self) -> Event:
        now_ms, controls = self._clock.utc_ms(), Controls()
        return notices.supervisor_ready(now_ms, self._own, self._settings, controls)

    def _leave(self, keepers: Sequence[Any]) -> Ended:
        """End the run in the store, if all ends are written."""
        for keeper in keepers:
            keeper.close()
        held = self._attempts.unsettled
        if not self._store.is_lost and not held:
            self._store.chore(self._upkeep.entry.end)
        self._store.close(CLOSE_S)
        in_order = not self._upkeep.entry.may_be_open
        self._observer.observe(
            SupervisorStopped(
                at_ms=self._clock.utc_ms(), pid=self._own.pid, leases_held=held
            )
        )
        if not in_order:
            return Ended(EXIT_FAILED)  # what it holds must be taken from it first
        return Ended(0, self._loop.changed)


@contextmanager
def _directory(root: Path, run_id: str) -> Iterator[Callable[[], None]]:
    """Keep a run directory on Linux, by which supervisors know that this run lives.

    What it held when it died was running: no mark says otherwise.

    Yields:
        What leaves it behind: its run may be open in the store.
    """
    if not IS_LINUX:
        yield lambda: None
        return
    from jobpool.sandbox.runs.run_directory import RunDirectory  # noqa: PLC0415 - Linux's
    from jobpool.sandbox.system.procfs import process_start_time  # noqa: PLC0415

    with RunDirectory.create(root, run_id) as directory:
        pid = os.getpid()
        directory.write_slot(0, pid, process_start_time(pid) or 0)
        yield directory.keep
        directory.write_slot(0, 0, 0)
