"""What people and programs read in a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jobpool.core.jobs.job import Attempt, Job
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.run_report import ReportRow
from jobpool.core.rules.waits import WaitRow
from jobpool.store.records.flows import (
    AskRow,
    FlowDetail,
    FlowFilter,
    FlowRow,
    MemberOf,
    StepResult,
)
from jobpool.store.records.jobs import KeptOutput, MisfitRow, SuspectRow
from jobpool.store.records.operating import AuditFilter, AuditRow, Filter, PauseRow
from jobpool.store.records.quotas import BucketRow, QuotaRow, QuotaWait, TenantRow
from jobpool.store.records.reading import (
    DepthRow,
    EndRow,
    FigureRow,
    GroupRow,
    Looked,
    MinuteRow,
    SampleRow,
    ScalingRow,
    SketchRow,
    Spot,
    StatRow,
    UnfinishedRow,
    WaitingRow,
)
from jobpool.store.records.runs import CapacityFact, KindRecord, Position
from jobpool.store.records.schedules import JobTick, ScheduleRow, TickRow


class Reading(Protocol):
    """Nothing is changed."""

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

    def get(self, job_id: int, connection: Any = None) -> Job | None:
        """Return a job, or None.

        Args:
            job_id: the job.
            connection: the caller's own, as for `enqueue`: the job is read as the
                transaction on it sees it. None: as everybody does.

        Raises:
            UsageError: the connection cannot be used.
        """
        ...

    def id_of(self, ref: str, connection: Any = None) -> int | None:
        """Return the id in a job's ref; None: it is not a ref of this store.

        The job may have been pruned since. *connection* is as for `get`.
        """
        ...

    def ref_of(self, job_id: int) -> str:
        """Return the ref of a job, of which nothing but its id is at hand.

        "": the store's key for refs is damaged, and there are none.
        """
        ...

    def payload(self, job_id: int, connection: Any = None) -> bytes | None:
        """Return a job's arguments as stored, or None; *connection* as for `get`."""
        ...

    def trace(self, job_id: int) -> str | None:
        """Return in which trace context a job was enqueued; None: in none."""
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
        self,
        which: Filter,
        limit: int = 100,
        before_id: int | None = None,
        after_id: int | None = None,
    ) -> list[Job]:
        """Return jobs, newest id first.

        Args:
            which: the filter.
            limit: at most so many.
            before_id: only those with a lower id.
            after_id: only those with a higher one.
        """
        ...

    def look(
        self,
        which: Filter,
        limit: int,
        before: Spot | None = None,
        window: int = 1000,
    ) -> Looked:
        """Look at some jobs, and return those of a filter: bounded, whatever there is.

        If all states that are meant are those of jobs that have ended, the latest end
        comes first; else the newest id.

        Args:
            which: the filter.
            limit: stop after so many that it means.
            before: where the look before has stopped; None: begin.
            window: stop after looking at so many.
        """
        ...

    def tally(self, most: int) -> dict[str, int]:
        """Count jobs by state, each up to *most*: more than that cost nothing."""
        ...

    def count(self, which: Filter) -> int:
        """Count jobs."""
        ...

    def leased(self, limit: int = 1000) -> list[Job]:
        """Return what runs or is about to: attempts that run for longest come first.

        Those that have just begun, or have not, come last. Its cost depends only on how
        many are leased.
        """
        ...

    def ends(self, limit: int = 100) -> list[EndRow]:
        """Return the last attempts that did not succeed, the latest first."""
        ...

    def minutes(self, since_ms: int) -> list[MinuteRow]:
        """Count what has ended by minute, from the one with a moment on, oldest first.

        Minutes in which nothing has ended are left out. Of attempts that did not
        succeed, the last 100,000 are looked at.

        Args:
            since_ms: the moment, by the store's clock.
        """
        ...

    def groups(self, which: Filter) -> list[GroupRow]:
        """Count jobs by kind, state and how they ended, most first."""
        ...

    def stats(self) -> list[StatRow]:
        """Return counts and mean times by pool, kind and state.

        Jobs whose time has come are runnable, also if no supervisor has stored that.
        """
        ...

    def figures(self) -> list[FigureRow]:
        """Return observed memory and duration by kind beside the limits."""
        ...

    def sketches(self, kind: str | None = None) -> list[SketchRow]:
        """Return what attempts have used, of one kind or of all, oldest week first."""
        ...

    def scaling(self) -> list[ScalingRow]:
        """Return how many supervisors each pool needs, by name.

        Of all pools that a supervisor has served, or that have something to do.
        """
        ...

    def depths(self) -> list[DepthRow]:
        """Count the jobs that have not ended, and those that are dead or quarantined.

        By state, as in `stats`.

        It reads each of them: ten million take seconds.
        """
        ...

    def tenant_depths(self, limit: int = 100) -> list[tuple[str, str, int]]:
        """Count unfinished jobs by tenant and state, the most first."""
        ...

    def open_flows(self) -> dict[str, int]:
        """Count flows that have not ended, by state."""
        ...

    def samples(self) -> list[SampleRow]:
        """Return the newest successful attempts, up to 1,000 of each kind and pool.

        They are among the newest 100,000 jobs: bounded, however long the history is.
        """
        ...

    def waits(self, over_s: float) -> list[WaitRow]:
        """Return what jobs have waited for in the last time, the most first.

        Args:
            over_s: seconds until now, rounded to slots of five minutes; at most a day.
        """
        ...

    def causes(self, waiting: Sequence[WaitingRow]) -> list[WaitRow]:
        """Return what due jobs wait for at this moment; ``job_s`` counts jobs.

        Args:
            waiting: what `waiting` has just returned.
        """
        ...

    def run_reports(self) -> list[ReportRow]:
        """Return the newest report of each open run that has made one, oldest first."""
        ...

    def waiting(self) -> list[WaitingRow]:
        """Return due jobs by kind with the oldest one's age; runnable as in `stats`."""
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

    def flows(
        self, which: FlowFilter, limit: int = 100, before_id: int | None = None
    ) -> list[FlowRow]:
        """Return flows, newest first; one that is still being built is none yet."""
        ...

    def asks(self, limit: int = 100) -> list[AskRow]:
        """Return the steps that wait for somebody, those of the oldest flows first.

        Of the 1,000 oldest flows that are open.
        """
        ...

    def strays(self, limit: int = 100) -> list[int]:
        """Return jobs that wait for nothing that is there, so for ever.

        Another program has damaged them: their step is not there, or they wait neither
        for one nor for a text. One for each such step. 10,000 steps are looked at, and
        as many jobs without one.
        """
        ...

    def flow(self, flow_id: int) -> FlowDetail | None:
        """Return a flow with its steps; None: there is none."""
        ...

    def flow_id_of(self, ref: str) -> int | None:
        """Return the id in a flow's ref; None: it is not a ref of this store.

        The flow may have been pruned since.
        """
        ...

    def flow_of(self, job_id: int) -> MemberOf | None:
        """Return the place of a job in its flow; None: it is in none."""
        ...

    def step_results(
        self,
        flow_id: int,
        numbers: Sequence[int] | None,
        after_id: int = 0,
        limit: int = 1000,
    ) -> list[StepResult]:
        """Return results of members that have succeeded and were not replaced.

        In order of their ids, which is that of adding.

        Args:
            flow_id: the flow.
            numbers: of the steps that are meant; None: of all.
            after_id: only of members with a higher id.
            limit: the most.
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

    def audits(
        self, which: AuditFilter, limit: int = 100, before_id: int | None = None
    ) -> list[AuditRow]:
        """Return what operators have done, newest first."""
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

    def clock_ms(self) -> int:
        """Return its clock: leases and schedules go by that, not by a host's."""
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

    def pauses(self) -> list[PauseRow]:
        """Return what is paused with its reason; a pause that has ended is none."""
        ...
