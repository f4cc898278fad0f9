"""What a supervisor asks of a store: runs, leases, ends, and what is kept in order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import (
    Lease,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    Progress,
    RequestReport,
    Settlement,
    Start,
    Throttle,
)
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.quotas.breaker import BreakerChange
from jobpool.core.rules.run_report import RunReport, StoreReport
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.core.rules.suspects import Deaths
from jobpool.store.contract.watermark import Watermark
from jobpool.store.records.jobs import HeldBack, LeaseBatch, Receipt
from jobpool.store.records.reading import SketchRow
from jobpool.store.records.runs import Formats, KindRecord, Renewal, Run
from jobpool.store.records.schedules import Published, Ticked


class Supervising(Protocol):
    """Jobs are leased, run and settled."""

    def begin_run(self, run: Run, kinds: Sequence[KindRecord], ttl_s: float) -> None:
        """Register a run and publish the kinds and quotas that its application knows.

        A run that is alive may call this again: it replaces what it published. If kinds
        have needs, or tenants have rules, older code must not lease any more: that is
        asked for (`require`), and until it is granted no run leases such jobs.

        Raises:
            StoreRefused: the run's format is below the store's least; nothing was
                changed.
        """
        ...

    def trace_key(self) -> bytes:
        """Return what tells this store's traces from others', for as long as it lives.

        It is a secret that must not be shown.
        """
        ...

    def confirm(self, known: Watermark) -> None:
        """Compare the store with what a run knows to be in it.

        Raises:
            StoreWentBack: the store holds less than it did.
        """
        ...

    def renew(
        self,
        run_id: str,
        ttl_s: float,
        *,
        anew: bool = False,
        known: Watermark | None = None,
    ) -> Renewal:
        """Extend all leases of a run to *ttl_s* from now.

        Leases that have run out are only extended if *anew* is true. So a supervisor
        learns that others may have taken its jobs before it can lease new ones. If the
        answer is lost, the leases may have been extended; renew again.

        Args:
            run_id: the run.
            ttl_s: the new time to live.
            anew: as said.
            known: compared first, then brought up to date.

        Raises:
            StoreWentBack: the store holds less than *known* says, or the run is
                unknown here: this is not the database in which it began. Nothing was
                changed.
        """
        ...

    def end_run(self, run_id: str) -> None:
        """Mark a run as ended; it must not hold any leases."""
        ...

    def require(self, wanted: int) -> None:
        """Ask for a feature that runs below its format cannot honour.

        From then on such runs can neither begin nor lease. Where leases expire by time,
        an older run without leases whose own ran out a minute ago does not count: it
        learns that it is outdated when it comes back, or, if its code does not know
        formats, that it has ended.

        Args:
            wanted: the feature's format.

        Raises:
            FeatureHeldBack: older runs are open. The wish is remembered, and
                `grant_format` fulfils it once they have ended.
        """
        ...

    def grant_format(self) -> None:
        """Fulfil what `require` has asked for, if no older run is open any more."""
        ...

    def formats(self) -> Formats:
        """Return which format may lease, which was asked for, and who holds it back."""
        ...

    def open_runs(self) -> list[Run]:
        """Return the runs that have not ended, oldest first."""
        ...

    def expired_runs(self) -> list[Run]:
        """Return the open runs that still hold leases which have run out."""
        ...

    def seize(
        self, run_id: str, *, by: str | None = None, lapsed_s: float = 0.0
    ) -> bool:
        """Keep an expired run from renewing until the open transaction ends.

        Args:
            run_id: the run.
            by: the run that asks. If its own lease has run out, the clock has jumped
                or it was stopped for a while: then it must not judge others.
            lapsed_s: the lease must have run out at least this long ago.

        Returns:
            False: the run has renewed or ended, or is about to; its leases must be
            left alone.
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
        ahead: Mapping[str, int] | None = None,
        slow_s: float = 0.0,
    ) -> LeaseBatch:
        """Lease due jobs to a run.

        First moves up to 1,000 due pending jobs to runnable, and cancels up to 1,000
        expired ones. Skips paused pools and kinds; while the whole store is paused
        it does nothing. Grants at most one suspect, ahead
        of every other job, and only while no other suspect is leased in the whole
        store. Grants nothing while another run of the same host has a suspect on
        probation, and nothing ahead of due suspects to a run that takes none yet.
        Where leases expire by time, a run whose own lease has run out gets nothing,
        and nothing is changed, until it has been renewed with ``anew``. A run whose
        format is below the store's least gets nothing.

        A job whose kind or tenant quotas concern gets a permit of each of them, or is
        not leased and takes none. Its permits last until the lease has ended and, if
        its handler has completed it, until it is settled; a dead run's until it has
        been buried.

        Args:
            run_id: the run that will hold the leases; must be open.
            wanted: most leases to grant, by pool.
            kinds: kinds that the run can execute, by pool; others wait.
            suspects: False: grant no suspect, and nothing else while some are due.
            alone: grant nothing else along with a suspect.
            ahead: how many of the wanted leases no slot is free for yet, by pool. Those
                take at most half of the permits that are free.
            slow_s: the answer may come so late: what a rate counts has so much more
                time to begin, and its rate pays for it.

        Returns:
            The suspect, if one is granted; then leases by pool in (priority
            descending, run_at, id) order.

        Raises:
            StoreRefused: the run is unknown or has ended, or the database cannot
                grant tokens any more; nothing was leased.
        """
        ...

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        """Write the ends of leases, each once, under its token, as of when it ended."""
        ...

    def record(self, beats: Sequence[Progress]) -> None:
        """Store what running attempts have reported; stale reports are dropped."""
        ...

    def begin_attempts(self, starts: Sequence[Start]) -> None:
        """Record when and in which slot attempts began, for operators to see."""
        ...

    def cancel_requests(self, run_id: str) -> list[int]:
        """Return the tokens of a run's leases whose cancellation was requested."""
        ...

    def leases_of(self, run_id: str) -> list[Lease]:
        """Return the leases that a run holds."""
        ...

    def note_leaving(self, run_id: str) -> None:
        """Record that a run drains or stops: its end will be no crash."""
        ...

    def note_death(
        self,
        run_id: str,
        ran: int,
        *,
        with_host: bool = False,
        living: Collection[str] = (),
    ) -> Deaths:
        """Record that a run was found dead, unless it was leaving.

        An idle run that died together with busy ones of its host does not count.

        Args:
            run_id: the run.
            ran: how many attempts were really running.
            with_host: its host has rebooted since: runs that died there in the same
                boot are the same death, not other ones.
            living: runs that are known to be alive.

        Returns:
            What is known of its death, and of others in the ten minutes before.
        """
        ...

    def clear(self, leases: Sequence[tuple[int, int]]) -> None:
        """Clear the suspects that are leased under ``(id, token)``; others stay."""
        ...

    def save_breakers(self, saved: Iterable[Saved]) -> None:
        """Save circuit breakers by kind; one without crashes is deleted."""
        ...

    def put_report(self, run_id: str, report: RunReport) -> None:
        """Keep what a run reports of itself, instead of what it did before."""
        ...

    def sample_waits(self, over_s: float) -> bool:
        """Find out what due jobs wait for, and add it to `waits`.

        Nothing is written if nothing waits, or if somebody has done this already.

        Args:
            over_s: the time that this moment stands for; nobody has another turn
                before that.

        Returns:
            Whether anything was added.
        """
        ...

    def load(self) -> StoreReport:
        """Return what the store tells of its own load; its commits are not in it."""
        ...

    def oldest_due(self, kinds: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """Return for how long the oldest runnable job of these kinds waits, by pool.

        Jobs that wait for a quota do not count. In seconds; 0: none waits.
        """
        ...

    def add_sketches(self, rows: Sequence[SketchRow]) -> None:
        """Add what attempts have used to the counts of the present week.

        Counts of weeks before the last eight are deleted. It never fails because of
        what is stored.

        Args:
            rows: each kind, pool, measure and bucket once; their week is ignored.
        """
        ...

    def prune(self, retention: Retention, limit: int = 1000) -> int:
        """Delete finished jobs that retention does not keep, oldest first.

        Entries of the audit trail that are too old go as well, as many at most.

        Args:
            retention: how long jobs of each state are kept, and how many. Never deletes
                below a count.
            limit: most jobs to delete.

        Returns:
            How many jobs were deleted; less than *limit*: none are left to delete, but
            for those that other transactions hold.
        """
        ...

    def prunable(self, retention: Retention) -> int:
        """Return how many jobs calls of `prune` would delete now.

        Args:
            retention: as for `prune`.
        """
        ...

    def drop_outputs(self, kept_bytes: int, limit: int = 1000) -> int:
        """Drop the oldest outputs of successful attempts, at most *limit*.

        Args:
            kept_bytes: an output goes once newer ones take up so much. Each takes up
                whole KiB.
            limit: most outputs to drop.

        Returns:
            How many were dropped.
        """
        ...

    def due(self, kinds: Mapping[str, Sequence[str]], limit: int) -> dict[str, int]:
        """Count due jobs of these kinds by pool, up to *limit* each.

        Those that are paused, or that wait for a quota, do not count.
        """
        ...

    def held_back(self, kinds: Mapping[str, Sequence[str]]) -> HeldBack | None:
        """Say whether quotas hold back due jobs of these kinds by pool; None: no.

        Asked after a lease that granted nothing. What is paused does not count.
        """
        ...

    def runnable_kinds(self, pools: Collection[str]) -> list[tuple[str, str]]:
        """Return pools and kinds of which there are runnable jobs; the first 1,000.

        It costs a step for each, however many jobs there are.
        """
        ...

    # -- permits of running attempts --------------------------------------------------

    def take_permits(
        self, run_id: str, asks: Sequence[PermitAsk]
    ) -> list[PermitAnswer]:
        """Take permits for running attempts, in order; each all of its cost, or none.

        An attempt that has the permit already is granted it again: the answer was lost.

        Args:
            run_id: the run that holds their leases.
            asks: the permits.
        """
        ...

    def return_permits(self, returns: Sequence[PermitReturn]) -> None:
        """Take back permits; one that is not there has been returned already.

        A cap's can be taken by others then; a rate's has been used.
        """
        ...

    def block_buckets(self, blocks: Sequence[Throttle]) -> None:
        """Let nobody have a permit of these buckets for so long; never shortened."""
        ...

    def report_requests(self, reports: Sequence[RequestReport]) -> list[BreakerChange]:
        """Count requests to services of quotas that have a breaker; others say nothing.

        While a breaker is not closed, only what its probe says counts.

        Returns:
            The breakers that have opened or were closed because of this.
        """
        ...

    def permits_freed(self) -> bool:
        """Say whether jobs may have become due because permits were freed.

        Since the last call, by this store object. Whoever frees them calls `wake` then,
        after the commit. Costs nothing.
        """
        ...

    def store_part(self, settlement: Settlement) -> bool:
        """Store the next part of a large result ahead of settling it.

        Call it until it returns False: there was none. Parts are invisible until the
        settlement is stored.
        """
        ...

    def tidy(self, *, waited_for: bool = False) -> None:
        """Do deferred upkeep; *waited_for*: only if much has piled up. Never fails."""
        ...

    def tick(self, limit: int | None = None) -> Ticked:
        """Enqueue what schedules say, in one transaction; any supervisor may call it.

        Handles the schedules whose tick is due, or for which the end of a job decides
        what follows, the longest due first. Ticks are enqueued whatever the depth of
        the queue. Does not wait for another caller: skips what that handles.

        Args:
            limit: most schedules to handle; None: as many as others can well wait for.
        """
        ...

    def publish_schedules(
        self, run_id: str, declared: Sequence[Declared], *, again: bool = False
    ) -> Published:
        """Store what the application of a run declares, and retire what it does not.

        Only the newest code decides that still runs somewhere: the version that was
        seen first by the store later than others. What is declared as it was is left
        alone, with its pause; another rule counts from now.

        Args:
            run_id: the run.
            declared: all of its schedules.
            again: this run has stored these before. What only its codec has made other
                arguments is left as it is, else two runs would change it in turn.

        Raises:
            UsageError: one cannot be kept; nothing was changed.
            FeatureHeldBack: one is encoded, and older runs are open.
        """
        ...

    def release_followers(self, limit: int = 1000) -> int:
        """Let jobs go that wait for a unique text which no unfinished job has any more.

        Whoever ends a job lets the one go that waits for it. This finds those that were
        missed: the end and the enqueueing did not see each other, or a hand has deleted
        the job. Each call goes on where the last one of this store object has stopped.

        Args:
            limit: look at no more than so many of those that wait.

        Returns:
            How many were let go, or were counted as waiting and were not.
        """
        ...

    def scrub(self, after_id: int | None) -> int | None:
        """Check some rows for damage that other programs have done, and repair it.

        Each call checks a few hundred jobs, in the order of their ids, and all small
        tables. An unfinished job whose row cannot be read is set aside: dead, with
        that reason. So is a job that is leased by a run which does not exist.

        Args:
            after_id: what the last call returned; None: start from the beginning.

        Returns:
            Where to continue; None: all jobs have been checked.
        """
        ...

    def damaged_rows(self) -> Sequence[str]:
        """Return the rows set aside or repaired since the last call; costs nothing."""
        ...
