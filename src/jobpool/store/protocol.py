"""The Store protocol: every state change that a job can go through, as one method.

Each method is one transaction by itself, or joins the one that `transaction`
has opened. A method that raises has changed nothing. The store's clock decides
what is due and what has expired. Everything that settles or renews a lease
names its token, and a superseded token changes nothing.

One conformance suite (``tests/store``) holds every implementation to this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeGuard

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import (
    Attempt,
    Enqueued,
    Job,
    JobState,
    Lease,
    NewJob,
    Progress,
    Settlement,
    Start,
)
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.suspects import Deaths
from jobpool.store.records import (
    FigureRow,
    Filter,
    GroupRow,
    KindRecord,
    LeaseBatch,
    MisfitRow,
    Receipt,
    Renewal,
    Run,
    StatRow,
    SuspectRow,
    WaitingRow,
)


class Store(Protocol):
    """Where jobs are durable. One object serves one thread at a time."""

    @property
    def url(self) -> str:
        """The store's URL with an absolute path and without a password."""
        ...

    @property
    def one_host(self) -> bool:
        """Whether everybody who uses this store is on one host, by its nature."""
        ...

    @property
    def run_root(self) -> Path:
        """The directory in which this host's supervisors keep their run directories."""
        ...

    def close(self) -> None:
        """Give the connection back; the store object is unusable afterwards."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Group several methods into one commit; re-entrant.

        Raises:
            StoreUnavailable: on leaving, the commit failed; nothing happened.
            OutcomeUnknown: its answer was lost, and nobody could be asked: it may or
                may not have happened.
        """
        ...

    # -- producers ---------------------------------------------------------------

    def enqueue(
        self, jobs: Sequence[NewJob], connection: Any = None, *, wakes: bool = False
    ) -> list[Enqueued]:
        """Store jobs, durably once this returns.

        Args:
            jobs: in order; ids grow in this order.
            connection: the caller's own DB-API connection to the same database; the
                jobs then belong to its transaction, and commit or vanish with it.
            wakes: `wake` as well, once they are stored; neither for a caller's
                connection nor for use within `transaction`.

        Raises:
            KeyConflict: a key is held by a job with other arguments or kind.
            QueueFull: more than the allowed number of jobs wait.
            UsageError: the connection is closed, or is to another database.
            StoreUnavailable: nothing was stored.
            OutcomeUnknown: the commit failed such that they may or may not be stored.
        """
        ...

    def caller_transaction(self, connection: Any) -> AbstractContextManager[None]:
        """Begin a write transaction on a caller's connection fairly, and end it.

        Takes its turn among jobpool's writers, begins, and on leaving commits and
        wakes the supervisors; after an exception everything is rolled back. Within
        it, jobs are stored by ``enqueue(jobs, connection=connection)``.

        Args:
            connection: the caller's own DB-API connection to the same database,
                without an open transaction.

        Raises:
            UsageError: the connection is closed, is to another database, or has a
                transaction open.
            StoreUnavailable: it could not be begun or committed; nothing happened.
            OutcomeUnknown: its commit failed such that it may or may not have happened.
        """
        ...

    # -- supervisors -------------------------------------------------------------

    def begin_run(self, run: Run, kinds: Sequence[KindRecord], ttl_s: float) -> None:
        """Enter a supervisor and publish the kinds that its application knows.

        May be called again by a living run: it replaces what it published.
        """
        ...

    def renew(self, run_id: str, ttl_s: float, *, anew: bool = False) -> Renewal:
        """Extend all leases of a run to *ttl_s* from now.

        What has run out is not extended until it is asked for *anew*: so whoever holds
        the run can distrust what it leased before, before it can lease anything again.
        When its answer is lost it may have happened; renew again.

        Raises:
            StoreRefused: the run is unknown here: this is not the database in which
                it began. Nothing was changed.
        """
        ...

    def end_run(self, run_id: str) -> None:
        """Mark a run as ended; it must hold no lease any more."""
        ...

    def open_runs(self) -> list[Run]:
        """Return the runs that have not ended, oldest first."""
        ...

    def expired_runs(self) -> list[Run]:
        """Return the open runs whose leases ran out and who still hold some."""
        ...

    def seize(
        self, run_id: str, *, by: str | None = None, lapsed_s: float = 0.0
    ) -> bool:
        """Within a transaction: keep an expired run from renewing until its end.

        Args:
            run_id: the run.
            by: the run that asks. If its own lease has run out, the clock has jumped,
                or it was away itself: then it must not judge others.
            lapsed_s: for so long at least the lease must have run out.

        Returns:
            False: it has renewed or ended, or is about to; its leases must be left
            alone.
        """
        ...

    def lease(
        self,
        run_id: str,
        wanted: Mapping[str, int],
        kinds: Mapping[str, Sequence[str]],
        *,
        suspects: bool = True,
        alone: bool = False,
    ) -> LeaseBatch:
        """Grant due jobs to a run.

        Moves at most 1,000 due pending jobs to runnable first, and cancels
        expired ones, at most 1,000. Paused pools and kinds are passed over. Of
        suspects at most one is granted, before any other job, and only while no other
        one is leased in the whole store. Nothing is granted beside a suspect that is on
        probation with another run of the same host, nor before due suspects to who
        takes none yet. Where leases end by time, a run whose own is over gets nothing,
        and nothing is changed, until it has been renewed anew.

        Args:
            run_id: the run that will hold the leases; must be open.
            wanted: most leases to grant, by pool.
            kinds: kinds that the run can execute, by pool; others wait.
            suspects: False: none of them now, nor anything else while some are due.
            alone: with a suspect nothing else is granted.

        Returns:
            The suspect, if one is granted; then leases by pool in (priority
            descending, run_at, id) order.

        Raises:
            StoreRefused: the run is unknown or has ended, or the database cannot
                grant tokens any more; nothing was leased.
        """
        ...

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        """Write the ends of leases, each once, under its token, as of when it was."""
        ...

    def record(self, beats: Sequence[Progress]) -> None:
        """Store what is known of running attempts; what is stale vanishes."""
        ...

    def begin_attempts(self, starts: Sequence[Start]) -> None:
        """Note when and where attempts began, for people to see."""
        ...

    def cancel_requests(self, run_id: str) -> list[int]:
        """Return tokens of the run's leases whose cancellation was asked for."""
        ...

    def leases_of(self, run_id: str) -> list[Lease]:
        """Return the leases that a run holds."""
        ...

    def note_leaving(self, run_id: str) -> None:
        """Note that a run drains or stops: its end will need no explanation."""
        ...

    def note_death(
        self,
        run_id: str,
        ran: int,
        *,
        with_host: bool = False,
        living: Collection[str] = (),
    ) -> Deaths:
        """Note that a run was found dead, unless it was leaving.

        One that was idle and died with others of its host that were not is no death.

        Args:
            run_id: the run.
            ran: how many attempts were really running.
            with_host: its host has been started anew since: what died there in the
                same life of the host is no other death.
            living: runs that are known to be alive.

        Returns:
            What is known of its death, and of others within ten minutes before.
        """
        ...

    def clear(self, leases: Sequence[tuple[int, int]]) -> None:
        """Clear suspects that are leased under ``(id, token)``; others stay."""
        ...

    def save_breakers(self, saved: Iterable[Saved]) -> None:
        """Keep what is known of kinds that crash in a row; without crashes: forget."""
        ...

    def prune(self, retention: Retention, limit: int = 1000) -> int:
        """Delete finished jobs older than their state's retention, at most *limit*."""
        ...

    def due(self, kinds: Mapping[str, Sequence[str]], limit: int) -> dict[str, int]:
        """Count due jobs of these kinds by pool, up to *limit* each; paused ones: 0."""
        ...

    def store_part(self, settlement: Settlement) -> bool:
        """Store a part of a large result, if any, ahead of settling it; say whether.

        Call it again until there is none; without the settlement nobody sees a part.
        """
        ...

    def tidy(self, *, waited_for: bool = False) -> None:
        """Do what was put off; little of it may wait, if others do. Never fails."""
        ...

    # -- people and programs that watch ----------------------------------------------

    def changed(self) -> bool:
        """Say whether somebody else may have committed since the last call; cheap."""
        ...

    def wake(self) -> None:
        """Wake this host's supervisors; harmless when there is none."""
        ...

    def describe(self) -> dict[str, str]:
        """Return facts about the database for an operator: versions, permissions.

        SQLite's are path, permissions, owner, size_bytes, filesystem,
        sqlite_version, wal_reset_bug, journal_mode, synchronous, schema_version and
        stale_settlements.
        """
        ...

    def concerns(self) -> list[str]:
        """Return what an operator should hear of the database's health; cheap."""
        ...

    def get(self, job_id: int) -> Job | None:
        """Return a job, or None."""
        ...

    def payload(self, job_id: int) -> bytes | None:
        """Return a job's arguments as stored, or None."""
        ...

    def attempts(self, job_id: int) -> list[Attempt]:
        """Return a job's unsuccessful attempts, oldest first."""
        ...

    def output(self, job_id: int) -> str | None:
        """Return the tail of what a running attempt has written so far, or None."""
        ...

    def find(
        self, which: Filter, limit: int = 100, before_id: int | None = None
    ) -> list[Job]:
        """Return jobs, newest id first."""
        ...

    def count(self, which: Filter) -> int:
        """Count jobs."""
        ...

    def groups(self, which: Filter) -> list[GroupRow]:
        """Count jobs by kind, state and how they ended, most first."""
        ...

    def stats(self) -> list[StatRow]:
        """Return counts and mean times by pool, kind and state."""
        ...

    def figures(self) -> list[FigureRow]:
        """Return observed memory and duration by kind beside the limits."""
        ...

    def waiting(self) -> list[WaitingRow]:
        """Return runnable jobs by kind with the oldest one's age."""
        ...

    def kinds(self) -> list[KindRecord]:
        """Return the published kinds."""
        ...

    # -- operators ------------------------------------------------------------------

    def cancel(self, ids: Iterable[int]) -> int:
        """Cancel unfinished or quarantined jobs; running ones at their next look.

        Returns:
            How many jobs were canceled or will be.
        """
        ...

    def revive(self, ids: Iterable[int], states: Sequence[JobState]) -> int:
        """Make jobs in one of *states* runnable now; counters reset, history kept.

        A job whose unique text another unfinished job holds stays as it is.

        Args:
            ids: the jobs.
            states: of pending, dead, quarantined, canceled.

        Returns:
            How many were revived.
        """
        ...

    def pause(self, *, pool: str | None = None, kind: str | None = None) -> bool:
        """Stop leasing a pool or a kind; False: it was paused already."""
        ...

    def resume(self, *, pool: str | None = None, kind: str | None = None) -> bool:
        """Lease a pool or a kind again; False: it was not paused."""
        ...

    def suspects(self) -> list[SuspectRow]:
        """Return the unfinished jobs that are suspects, by id."""
        ...

    def misfits(self) -> list[MisfitRow]:
        """Return kinds whose jobs' arguments did not fit, by pool and kind."""
        ...

    def breakers(self) -> list[Saved]:
        """Return the kinds that crash in a row."""
        ...

    def paused(self) -> list[tuple[str, str]]:
        """Return what is paused: ``("pool" | "kind", name)``."""
        ...

    def scrub(self, after_id: int | None) -> int | None:
        """Look at some rows for what somebody else has spoilt there, and put it right.

        Jobs are looked at a few hundred in a call, in the order of their ids; all
        small tables in each. An unfinished job whose row cannot be read is set aside:
        dead, with that reason. So is one that is leased by a run that is none.

        Args:
            after_id: what the last call returned; None: begin.

        Returns:
            Where to go on; None: that was all.
        """
        ...

    def damaged_rows(self) -> Sequence[str]:
        """Return what was set aside or put right since the last call; costs nothing."""
        ...


class SharedStore(Store, Protocol):
    """A store that several hosts can use: its leases expire by its own clock."""

    def wait_for_wake(self, timeout_s: float) -> bool:
        """Wait until somebody rings, at most so long.

        Returns:
            Whether anybody rang. Where no ring can be heard (behind a pooler) it is
            False after the time: polling remains.
        """
        ...


def is_shared(store: Store) -> TypeGuard[SharedStore]:
    """Say whether other hosts may use the store, so that leases expire by time."""
    return not store.one_host
