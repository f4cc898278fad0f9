"""This run's entry in the store: how it is made, and whether it may be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

import msgspec

from jobpool.core.application.handler_spec import codec_in
from jobpool.core.clock import Clock
from jobpool.core.formats import CODECS, QUOTAS
from jobpool.core.rules.quotas.definition import Limits
from jobpool.errors import (
    FeatureHeldBack,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from jobpool.store.protocol import Store
from jobpool.store.records.runs import KindRecord, Run
from jobpool.supervisor.machine.dispatch.fencing import published_ttl_s
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.maintenance.definitions import Definitions
from jobpool.supervisor.maintenance.lease_renewal import LeaseRenewal
from jobpool.supervisor.maintenance.other_pools import OtherPools
from jobpool.supervisor.maintenance.ticking import Ticking
from jobpool.supervisor.storage.inbox import Chore, Posts
from jobpool.supervisor.storage.thread import StoreThread

NO_THREAD = "can't start new thread"
"""Text of the RuntimeError of `Thread.start`: Python has no error of its own for it."""


class Entry:
    """This supervisor's run in the store.

    Written in the store thread; read in the main thread once that has ended or was
    given up.

    Args:
        run: this supervisor's own.

    Attributes:
        may_be_open: the store may say that the run is open: its directory, by which
            others prove it dead, must outlive it.
    """

    def __init__(self, run: Run) -> None:
        self.may_be_open = False
        self._run = run

    def begin(
        self,
        store: Store,
        kinds: Sequence[KindRecord],
        lease_s: float,
        app_version: str = "",
        limits: Limits | None = None,
    ) -> str:
        """Enter the run, or update its entry.

        Args:
            store: its store.
            kinds: what it publishes.
            lease_s: how long its leases hold without a renewal.
            app_version: of the application that it runs now.
            limits: the quotas that it publishes.

        Returns:
            Why its jobs with quotas do not begin yet; "": they may.

        Raises:
            StoreError: as of `Store.begin_run`.
        """
        # Until the store answers it may be open: the supervisor can end meanwhile.
        before, self.may_be_open = self.may_be_open, True
        version = app_version or None
        self._run = msgspec.structs.replace(
            self._run, app_version=version, limits=limits or Limits()
        )
        try:
            store.begin_run(self._run, kinds, lease_s)
        except OutcomeUnknown:
            raise
        except StoreError:
            self.may_be_open = before
            raise
        if any(codec_in(kind.schema) is not None for kind in kinds):
            # Its producers may have no right to do so. If older supervisors still run,
            # the wish is remembered, and whoever enqueues is told.
            with suppress(FeatureHeldBack):
                store.require(CODECS)
        if self._run.limits.is_asking or any(kind.needs for kind in kinds):
            try:
                store.require(QUOTAS)
            except FeatureHeldBack as exc:
                return str(exc)
        return ""

    def end(self, store: Store) -> tuple[()]:
        """End the run, and wake other supervisors."""
        store.end_run(self._run.id)
        self.may_be_open = False
        store.wake()
        return ()


class Upkeep:
    """A run's entry, its schedules, its quotas, and jobs of its kinds in other pools.

    Args:
        run: this supervisor's own.
        thread: the store thread.
        clock: all three clocks.
    """

    def __init__(self, run: Run, thread: StoreThread, clock: Clock) -> None:
        self.entry = Entry(run)
        self.ticking = Ticking(run.id, clock)
        self.definitions = Definitions(clock)
        self.other_pools = OtherPools(thread)
        self._thread = thread
        self._clock = clock

    def enter(
        self,
        store: Store,
        registry: Registry,
        *,
        renewal: LeaseRenewal,
        keepers: Sequence[Thread],
        look: Callable[[Store], Posts] = lambda _store: (),
    ) -> Posts:
        """Enter the run in the store, or update its entry; for `until_taken`.

        Args:
            store: the store, in its thread.
            registry: the kinds of its application.
            renewal: renews its leases, where they end by time.
            keepers: what is started once it is entered.
            look: called once it is entered, for what is to be posted with it.
        """
        shared, sent_s = self._thread.shared, self._clock.monotonic_s()
        lease_s = published_ttl_s(renewal.ttl_s) if shared else renewal.ttl_s

        def publish(store: Store) -> str:
            return self.entry.begin(
                store,
                registry.records(self.other_pools.elsewhere),
                lease_s,
                registry.app_version,
                registry.published,
            )

        self.other_pools.serve(registry, publish)
        held_back = publish(store)
        self.other_pools.look(store)  # before the first lease
        store.confirm(self._thread.known)
        seen = look(store)
        # Only now: renewing a run that is not entered yet reports the wrong store.
        # A thread may be refused; then all this is tried again.
        for keeper in keepers:
            if keeper.ident is None:
                keeper.start()
        self._thread.chore(self.ticking.publish)
        if registry.published != Limits():
            self._thread.chore(self.definitions.compare)
        said = self.definitions.held_back(registry.laned_kinds, held_back)
        if shared and renewal.ident is None:
            return (renewal.begin(sent_s), *seen, *said)
        return (*seen, *said)


def until_taken(
    chore: Chore, leave: Callable[[Chore], None], wanted: Callable[[], bool]
) -> Chore:
    """Return a chore that is left again until it succeeds.

    A supervisor cannot work without it. It is tried again if the store is away or the
    machine has no thread to spare. Any other error ends the supervisor, which would
    otherwise wait for ever and begin nothing.

    Args:
        chore: what is to be done.
        leave: leaves a chore with the store thread.
        wanted: whether it is still to be done; asked in the store thread.
    """

    def try_it(store: Store) -> Posts:
        try:
            return chore(store)
        except (StoreUnavailable, OutcomeUnknown):
            if wanted():
                leave(try_it)
            raise
        except StoreError:
            raise
        except Exception as exc:
            if str(exc) == NO_THREAD and wanted():
                leave(try_it)
                raise StoreUnavailable(
                    "the machine refuses this supervisor another thread; it tries "
                    "again. Raise the limit of processes, or end other programs"
                ) from exc
            raise StoreRefused(
                f"this supervisor could not enter its run in the store: {exc!r}. If "
                "the store was edited outside jobpool, repair it or restore a backup; "
                "else please report this"
            ) from exc

    return try_it
