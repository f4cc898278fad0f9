"""The Store protocol: one method for each state change of a job.

Each method is a transaction of its own, or joins the one that `transaction` has opened.
A method that raises has changed nothing. The store's clock decides what is due and what
has expired. Whatever settles or renews a lease names its token, and a superseded token
changes nothing.

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
from jobpool.core.rules.quotas.definition import Tenant
from jobpool.core.rules.quotas.rules import Override
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.core.rules.suspects import Deaths
from jobpool.store.records import (
    AuditEntry,
    AuditFilter,
    AuditRow,
    Belongings,
    BucketRow,
    CapacityFact,
    FigureRow,
    Filter,
    Formats,
    FullRow,
    GroupRow,
    JobTick,
    KeptOutput,
    KindRecord,
    LeaseBatch,
    MisfitRow,
    PauseRow,
    Position,
    Published,
    QuotaRow,
    QuotaWait,
    Receipt,
    Renewal,
    Replay,
    Run,
    ScheduleRow,
    SketchRow,
    StatRow,
    SuspectRow,
    TenantRow,
    Ticked,
    TickRow,
    UnfinishedRow,
    WaitingRow,
)
from jobpool.store.watermark import Watermark


class Store(Protocol):
    """A durable store of jobs. One object serves one thread at a time."""

    @property
    def url(self) -> str:
        """The store's URL with an absolute path and without a password."""
        ...

    @property
    def one_host(self) -> bool:
        """Whether this kind of store can only be used from one host."""
        ...

    @property
    def run_root(self) -> Path:
        """The directory in which this host's supervisors keep their run directories."""
        ...

    def close(self) -> None:
        """Close the connection; the store object cannot be used any more."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Group several methods into one commit; re-entrant.

        Raises:
            StoreUnavailable: on leaving, the commit failed; nothing happened.
            OutcomeUnknown: its answer was lost and could not be found out: it may or
                may not have happened.
        """
        ...

    # -- producers ---------------------------------------------------------------

    def enqueue(
        self, jobs: Sequence[NewJob], connection: Any = None, *, wakes: bool = False
    ) -> list[Enqueued]:
        """Store jobs; they are durable once this returns.

        Args:
            jobs: in order; ids grow in this order.
            connection: the caller's own DB-API connection to the same database; the
                jobs then belong to its transaction and commit or roll back with it.
            wakes: `wake` as well, once they are stored; not for use with a caller's
                connection or within `transaction`.

        Raises:
            KeyConflict: a key is held by a job with other arguments or kind.
            QueueFull: as many jobs wait as may wait, in the whole queue or in a pool,
                or of a kind or a tenant; or one has waited for too long.
            UsageError: the connection is closed, or is to another database.
            StoreUnavailable: nothing was stored.
            OutcomeUnknown: the commit failed such that they may or may not be stored.
        """
        ...

    def full(self) -> list[FullRow]:
        """Return what has no room for more jobs, by this producer's limits."""
        ...

    def caller_transaction(self, connection: Any) -> AbstractContextManager[None]:
        """Begin a write transaction on a caller's connection, and end it.

        Waits for its turn among jobpool's writers, begins, and on leaving commits and
        wakes the supervisors; an exception rolls everything back. Within it, jobs are
        stored by ``enqueue(jobs, connection=connection)``.

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
        """Register a run and publish the kinds and quotas that its application knows.

        A run that is alive may call this again: it replaces what it published. If kinds
        have needs, or tenants have rules, older code must not lease any more: that is
        asked for (`require`), and until it is granted no run leases such jobs.

        Raises:
            StoreRefused: the run's format is below the store's least; nothing was
                changed.
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

    # -- people and programs that read ------------------------------------------------

    def changed(self) -> bool:
        """Say whether another connection may have committed since the last call."""
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

    def capacity(self, memory_bytes: int) -> list[CapacityFact]:
        """Measure what the database has room for; takes up to some seconds.

        Args:
            memory_bytes: what this machine has.
        """
        ...

    def concerns(self) -> list[str]:
        """Return warnings about the database's health for an operator; cheap."""
        ...

    def get(self, job_id: int) -> Job | None:
        """Return a job, or None."""
        ...

    def id_of(self, ref: str) -> int | None:
        """Return the id in a job's ref; None: it is not a ref of this store.

        The job may have been pruned since.
        """
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

    def kept_output(self, job_id: int) -> KeptOutput | None:
        """Return what a successful attempt has written, if it was kept; else None."""
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

    def sketches(self, kind: str | None = None) -> list[SketchRow]:
        """Return what attempts have used, of one kind or of all, oldest week first."""
        ...

    def waiting(self) -> list[WaitingRow]:
        """Return runnable jobs by kind with the oldest one's age."""
        ...

    def kinds(self) -> list[KindRecord]:
        """Return the published kinds."""
        ...

    def schedules(self, name: str | None = None) -> list[ScheduleRow]:
        """Return all schedules, or the one of a name, in order of their names."""
        ...

    def ticks(self, name: str, limit: int = 100) -> list[TickRow]:
        """Return a schedule's ticks, the latest nominal time first."""
        ...

    def tick_of(self, job_id: int) -> JobTick | None:
        """Return the tick that a job is of; None: of none that is still there.

        A job that was replaced is of none: its tick is the new one's.
        """
        ...

    def quotas(self) -> list[QuotaRow]:
        """Return all quotas that are published or set, with their use, by name."""
        ...

    def buckets(self, quota: str, limit: int = 100) -> list[BucketRow]:
        """Return a quota's buckets, those first for which most jobs wait."""
        ...

    def waits_of(self, job_id: int) -> list[QuotaWait]:
        """Return what a runnable job waits for; empty: no quota holds it back."""
        ...

    def differing_quotas(self) -> Mapping[str, str]:
        """Return how runs define quotas differently, by name; no job is counted."""
        ...

    def tenants(self) -> list[TenantRow]:
        """Return the tenants that have rules or are paused, by name."""
        ...

    # -- operators ------------------------------------------------------------------

    def cancel(self, ids: Iterable[int]) -> int:
        """Cancel unfinished or quarantined jobs; running ones when next checked.

        Returns:
            How many jobs were canceled or will be.
        """
        ...

    def revive(self, ids: Iterable[int], states: Sequence[JobState]) -> int:
        """Make jobs in one of *states* runnable now: reset counters, keep history.

        A job whose unique text is held by another unfinished job stays as it is, and
        so does one that another job has replaced.

        Args:
            ids: the jobs.
            states: of pending, dead, quarantined, canceled.

        Returns:
            How many were revived.
        """
        ...

    def replay(self, replays: Sequence[Replay]) -> list[int | None]:
        """Replace finished jobs by new ones; accepted whatever the queue's depth.

        The old job stays as it is, but for its key and its tick of a schedule, which
        the new one takes over, and the link to that one.

        Returns:
            The new job's id for each; None: nothing was changed for this one. Its job
            does not exist, has not ended, or was replaced or erased; or another job
            holds the key or the unique text.

        Raises:
            UsageError: a new job cannot be stored.
            StoreUnavailable: nothing was replaced.
        """
        ...

    def pause(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        whole_store: bool = False,
        for_s: float | None = None,
        who: str | None = None,
        note: str | None = None,
    ) -> bool:
        """Stop leasing a pool, a kind, or anything.

        Args:
            pool: the pool.
            kind: or the kind.
            tenant: or the jobs of a tenant.
            quota: or what needs a quota.
            whole_store: or all of them.
            for_s: until so long from now by the store's clock; None: until resumed. It
                replaces the end of a pause that there is.
            who: who pauses it, for others to see.
            note: why; None: the note of a pause that there is stays.

        Returns:
            False: it was paused already, with this end.

        Raises:
            UsageError: not just one of them is named; or it would end at once.
            FeatureHeldBack: a tenant or a quota, and older runs are open; nothing was
                changed.
        """
        ...

    def resume(
        self,
        *,
        pool: str | None = None,
        kind: str | None = None,
        tenant: str | None = None,
        quota: str | None = None,
        whole_store: bool = False,
    ) -> bool:
        """Undo the same pause; others stay. False: it was not paused."""
        ...

    def set_quota(self, override: Override, *, for_s: float | None = None) -> bool:
        """Set numbers of a quota, above those that are published.

        Args:
            override: a number that is None stays as it is set, if it is; its end is
                ignored.
            for_s: until so long from now by the store's clock; None: until
                `reset_quota`. It replaces the end that there is.

        Returns:
            False: they were set already, with this end.

        Raises:
            UsageError: the numbers are not allowed, or would end at once; nothing was
                changed. That nobody publishes the quota is no error.
            FeatureHeldBack: it is a kind's own cap, and older runs are open; likewise.
        """
        ...

    def reset_quota(self, name: str) -> bool:
        """Undo `set_quota`, unblock all buckets of a quota, and fill up its rate.

        Permits of a cap that are in use stay so.

        Returns:
            False: there was nothing to do.
        """
        ...

    def set_tenant(self, tenant: Tenant, *, who: str | None = None) -> bool:
        """Set the rule of a tenant, or of all others (``*``), above the published one.

        Returns:
            False: it was set so already.

        Raises:
            UsageError: it is not allowed; nothing was changed.
            FeatureHeldBack: older runs are open; likewise.
        """
        ...

    def remove_tenant(self, name: str) -> bool:
        """Undo `set_tenant`; a published rule is in force again.

        Returns:
            False: it was not set.
        """
        ...

    def put_schedule(self, declared: Declared) -> bool:
        """Store a schedule of nobody's code, or change it. A new rule counts from now.

        Returns:
            False: it was there as it is.

        Raises:
            UsageError: it cannot be kept, or an application declares one of this name;
                nothing was changed.
            FeatureHeldBack: it is encoded, and older runs are open; likewise.
        """
        ...

    def pause_schedule(
        self,
        name: str,
        *,
        for_s: float | None = None,
        who: str | None = None,
        note: str | None = None,
    ) -> bool:
        """Let a schedule have no ticks; its jobs go on.

        Args:
            name: the schedule.
            for_s: until so long from now by the store's clock; None: until resumed. It
                replaces the end of a pause that there is.
            who: who pauses it, for others to see.
            note: why.

        Returns:
            False: it was paused already, with this end.

        Raises:
            UsageError: there is no such schedule, or the pause would end at once.
        """
        ...

    def resume_schedule(self, name: str, *, catch_up: bool = False) -> bool:
        """Undo a pause.

        Args:
            name: the schedule.
            catch_up: the ticks of the pause were missed, and its policy says what
                happens to them; otherwise there are none.

        Returns:
            False: it was not paused.

        Raises:
            UsageError: there is no such schedule.
        """
        ...

    def remove_schedule(self, name: str) -> bool:
        """Delete a schedule with its ticks. Their jobs stay.

        Returns:
            False: there was none.

        Raises:
            UsageError: an application that runs declares it; nothing was changed.
        """
        ...

    def run_now(self, name: str) -> int:
        """Enqueue a tick whose nominal time is now, whatever the rule and the policy.

        Returns:
            The job's id.

        Raises:
            UsageError: there is no such schedule.
        """
        ...

    def backfill(
        self, name: str, from_ms: int, to_ms: int, *, dry_run: bool = False
    ) -> int:
        """Store the ticks of a span of the past; they run one after another.

        Args:
            name: the schedule.
            from_ms: the first moment.
            to_ms: the last one.
            dry_run: only count them.

        Returns:
            How many there are. Times that have a tick already are left alone.

        Raises:
            UsageError: there is no such schedule; it has no times of its own; the span
                is not in the past, or has more than 1,000. Nothing was changed.
        """
        ...

    def restart_schedules(self, *, catch_up: bool) -> int:
        """Let all schedules of a restored store go on.

        Args:
            catch_up: what they have missed since the backup was made is up to their
                policies; otherwise they have no ticks before now.

        Returns:
            How many.
        """
        ...

    def audit(self, entry: AuditEntry, audit_id: int | None = None) -> int:
        """Write down what an operator does, in the transaction that does it.

        Args:
            entry: the action.
            audit_id: of an action that goes on; its target, its count and the paths
                that were changed are replaced.

        Returns:
            The id of its row.
        """
        ...

    def audits(
        self, which: AuditFilter, limit: int = 100, before_id: int | None = None
    ) -> list[AuditRow]:
        """Return what operators have done, newest first."""
        ...

    def amend_audit(self, audit_id: int, *, target: str, note: str | None) -> None:
        """Replace the texts of an entry that name somebody whose data is erased."""
        ...

    def belongings(self, ids: Iterable[int]) -> Belongings:
        """Count what `erase` would delete of jobs, beside their rows."""
        ...

    def erase(self, ids: Iterable[int]) -> int:
        """Delete all data of finished jobs; their rows stay, for statistics.

        Arguments, result, progress, checkpoint, errors, attempts, output, key, unique
        text, tenant and trace are gone. Kind, pool, state, outcome, times, counters
        and figures stay; the reason is when they were erased (`Job.is_erased`). Such a
        job cannot be revived.
        Jobs that have not finished stay as they are. Erasing again changes nothing.

        Returns:
            How many of the jobs had finished, and hold no data now.
        """
        ...

    def wipe(self, *, rewrite: bool = False) -> list[str]:
        """Overwrite what deleted rows have left in the database's own files.

        Args:
            rewrite: copy the tables, so that nothing is left in them. Nobody can write
                meanwhile, and it needs as much room again on the disk.

        Returns:
            Sentences on what is left, and what to do about it.

        Raises:
            UsageError: a transaction is open.
        """
        ...

    def suspects(self) -> list[SuspectRow]:
        """Return the unfinished jobs that are suspects, by id."""
        ...

    def misfits(self) -> list[MisfitRow]:
        """Return counts of jobs whose arguments did not fit, by pool and kind."""
        ...

    def breakers(self) -> list[Saved]:
        """Return the circuit breakers of kinds that crash in a row."""
        ...

    def paused(self) -> list[tuple[str, str]]:
        """Return what is paused: ``(what, name)`` of `PauseRow`."""
        ...

    def position(self) -> Position:
        """Return how far the store has come.

        Raises:
            StoreRefused: its source of tokens is damaged.
        """
        ...

    def unfinished(self) -> list[UnfinishedRow]:
        """Return counts of unfinished jobs by kind and pool."""
        ...

    def begin_anew(self, *, tokens: int, last_id: int) -> None:
        """Count a restore, and let tokens and ids go on after these.

        Neither is ever lowered. Where they are sequences, they are raised at once, even
        if the transaction is rolled back.

        Args:
            tokens: as in `Position`.
            last_id: as in `Position`.
        """
        ...

    def pauses(self) -> list[PauseRow]:
        """Return what is paused with its reason; a pause that has ended is none."""
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


class SharedStore(Store, Protocol):
    """A store that several hosts can use: its leases expire by its own clock."""

    def wait_for_wake(self, timeout_s: float) -> bool:
        """Wait until a client calls `wake`, at most this long.

        Returns:
            Whether one did. Behind a pooler, where no wake-up arrives, it is False
            after the full time: poll.
        """
        ...


def is_shared(store: Store) -> TypeGuard[SharedStore]:
    """Say whether other hosts may use the store, so that leases expire by time."""
    return not store.one_host
