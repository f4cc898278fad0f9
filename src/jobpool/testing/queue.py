"""A whole queue in a test: jobs in memory, run in this process, in virtual time.

Theory of operation. While a `Queue` is entered, every `JobPool` of this process stores
its jobs in one `MemoryStore`, whatever store it names. Its handlers run where the test
calls `drain`, `run_due` or `advance`, one after the other. What an attempt costs, when
it runs again, and when a job is dead is decided by the rules that supervisors have
(`core.rules.lifecycle`), and so are quotas, flows and schedules: they are the store's.
What is missing is the process: there are no limits that end an attempt, no isolation,
nothing that restores it. `fail_next` stands for the deaths.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from jobpool.client.gateway import LazyStore, find_settings
from jobpool.client.handler import Call, Handler
from jobpool.client.job import Job
from jobpool.client.registration import Registration
from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import HandlerSpec
from jobpool.core.config.settings import ClientSettings, PoolSettings, Settings
from jobpool.core.jobs.job import (
    UNFINISHED,
    Enqueued,
    JobState,
    Lease,
    NewJob,
)
from jobpool.core.jobs.job import Job as StoredJob
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.lifecycle import account
from jobpool.core.rules.limits import PoolLimits
from jobpool.core.rules.quotas.definition import Quota
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.core.units import DurationLike, duration_s
from jobpool.core.version import __version__
from jobpool.errors import StoreUnavailable, UsageError
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine.registry import Registry
from jobpool.testing.attempt import Finished, run_leased, trace_of
from jobpool.testing.fake_clock import FakeClock
from jobpool.testing.faults import Fault, ending_of

ATTEMPTS_MAX = 10_000
"""A queue in which more run than this is taken to go on for ever."""
_LIMITS = PoolLimits(timeout_s=600.0, memory_bytes=512 * 2**20)
_FOR_EVER_S = 1e9
_LISTED_MAX = 100_000
_SHOWN_MAX = 10


class Ran(NamedTuple):
    """An attempt that has run."""

    job_id: int
    kind: str
    attempt: int
    """From 1."""
    state: JobState
    """The job's, after it."""
    outcome: Outcome | None
    """None: it snoozed."""
    error: BaseException | None
    """What the handler raised."""


class Queue:
    """A queue in memory for a test; entered, it is the one of every `JobPool`.

    Args:
        clock: its time; None: a `FakeClock` of its own.
        inline: each job runs as soon as it is enqueued and due, before ``enqueue``
            returns, and what its handler raises comes out of there.

    Attributes:
        clock: its time. It moves by `drain` and `advance` alone.
    """

    def __init__(self, clock: FakeClock | None = None, *, inline: bool = False) -> None:
        self.clock = clock or FakeClock()
        self._store = _Store(self.clock, self._on_enqueued if inline else None)
        self._served: tuple[Registration, ...] = ()
        self._registry: Registry | None = None
        self._settings = ClientSettings(store=self._store.url)
        self._reported = AppReport()
        self._run_id = ""
        self._numbers = itertools.count(1)
        self._faults: list[tuple[Fault, str | None, bool]] = []
        self._running = False
        self._next_due_s: float | None = None
        self._away = False

    def __enter__(self) -> Self:
        """Take the place of every store."""
        if self._open in LazyStore.stand_ins:
            raise UsageError("this Queue is entered already")
        LazyStore.stand_ins.append(self._open)
        return self

    def __exit__(self, *exc: object) -> None:
        """Give it back; the jobs stay, to be looked at."""
        LazyStore.stand_ins.remove(self._open)

    def serve(self, *applications: Registration) -> None:
        """Run the handlers of these `JobPool` objects only; by default of all."""
        self._served = applications
        self._registry = None

    # -- running ---------------------------------------------------------------------

    def run_due(self, *, raises: bool = False) -> list[Ran]:
        """Run what is due now, and what that makes due, until nothing is.

        Args:
            raises: raise what a handler raises, once its end is stored.

        Raises:
            UsageError: more than `ATTEMPTS_MAX` attempts ran, a kind is declared
                twice, or this is called by a handler.
        """
        found: list[Ran] = []
        while ran := self._turn(raises=raises):
            found += ran
            if len(found) > ATTEMPTS_MAX:
                raise UsageError(
                    f"over {ATTEMPTS_MAX:,} attempts have run, the last one of "
                    f"{found[-1].kind}: jobs seem to enqueue each other for ever"
                )
        return found

    def drain(self, *, raises: bool = False) -> list[Ran]:
        """Run everything: time moves on to each retry, delay and permit.

        Ends when nothing is left that time alone would make due: what waits for an
        approval, or is paused, stays. Ticks of schedules run as far as time moves, but
        do not move it: for them there is `advance`.

        Args:
            raises: as for `run_due`.

        Raises:
            UsageError: as for `run_due`.
        """
        found = self.run_due(raises=raises)
        while (pause_s := self._pause_s(ticks=False)) is not None:
            self.clock.advance(pause_s)
            found += self.run_due(raises=raises)
            if len(found) > ATTEMPTS_MAX:
                raise UsageError(
                    f"over {ATTEMPTS_MAX:,} attempts have run, the last one of "
                    f"{found[-1].kind}: does it snooze or retry for ever?"
                )
        return found

    def advance(self, duration: DurationLike, *, raises: bool = False) -> list[Ran]:
        """Let time pass, and run what falls due meanwhile: jobs, retries, ticks.

        Args:
            duration: how long.
            raises: as for `run_due`.

        Raises:
            ConfigError: it is no duration.
            UsageError: as for `run_due`.
        """
        left_s = duration_s(duration, "duration")
        found = self.run_due(raises=raises)
        while (pause_s := self._pause_s(ticks=True)) is not None and pause_s <= left_s:
            left_s -= pause_s
            self.clock.advance(pause_s)
            found += self.run_due(raises=raises)
        self.clock.advance(left_s)
        return found + self.run_due(raises=raises)

    # -- what can go wrong -----------------------------------------------------------

    def fail_next(
        self,
        fault: Fault | str,
        handler: Handler[..., Any] | None = None,
        *,
        at: Literal["begin", "end"] = "end",
    ) -> None:
        """Let the next attempt end so, whatever its handler does.

        Args:
            fault: how.
            handler: whose next attempt; None: anybody's.
            at: ``"end"``: its handler has done all of its work, and is told nothing;
                ``"begin"``: it has done none.
        """
        kind = None if handler is None else handler.kind
        self._faults.append((Fault(fault), kind, at == "begin"))

    @contextmanager
    def store_away(self) -> Iterator[None]:
        """Let every use of the store in the block raise `jobpool.StoreUnavailable`."""
        self._away = True
        try:
            yield
        finally:
            self._away = False

    # -- what is there ---------------------------------------------------------------

    def jobs(self, handler: Handler[..., Any] | None = None) -> list[Job[Any]]:
        """Return all jobs, or those of a handler, in the order of their ids."""
        kinds = None if handler is None else handler.kinds
        return [
            self._handle(job)
            for job in self._stored()
            if kinds is None or job.kind in kinds
        ]

    def assert_enqueued(self, call: Call[Any], *, times: int | None = None) -> None:
        """Fail unless this call was enqueued, whatever has become of it.

        What its options say must hold as well: pool, priority, key, unique, tenant,
        ``run_in`` and ``run_at``.

        Args:
            call: such as ``mail.call("ann")`` or ``mail.options(key="7").call("ann")``.
            times: exactly how often; None: at least once.

        Raises:
            AssertionError: it was not; the message says what was.
        """
        __tracebackhide__ = True
        count = sum(self._is_of(job, call.packed) for job in self._stored())
        if count == times or (times is None and count):
            return
        wanted = "at least once" if times is None else f"{times} times"
        raise AssertionError(
            f"{_told(call.packed)} was enqueued {count} times, expected {wanted}; "
            f"{self._listed(call.packed.kind)}"
        )

    def assert_not_enqueued(
        self, what: Call[Any] | Handler[..., Any] | None = None
    ) -> None:
        """Fail if this call, any call of this handler, or anything was enqueued.

        Raises:
            AssertionError: it was; the message says what.
        """
        __tracebackhide__ = True
        if isinstance(what, Call):
            self.assert_enqueued(what, times=0)
        elif self.jobs(what):
            raise AssertionError(
                "nothing should have been enqueued; "
                f"{self._listed(None if what is None else what.kind)}"
            )

    # -- inside ----------------------------------------------------------------------

    def _handle(self, job: StoredJob) -> Job[Any]:
        application = self._application(job.kind)
        return Job(
            job.id,
            job.kind,
            created=False,
            gateway=application.gateway,
            decode=application.decoder_of(job.kind),
        )

    def _open(self) -> Store:
        if self._away:
            raise StoreUnavailable(
                "the store is away, because the test says so; nothing was done"
            )
        return self._store

    def _on_enqueued(self) -> None:
        if not self._running:
            self.run_due(raises=True)

    def _turn(self, *, raises: bool) -> list[Ran]:
        """Lease what is due and run it; empty: nothing is due."""
        if self._running:
            raise UsageError(
                "jobs run one after the other here: a handler cannot run others"
            )
        registry, store = self._begun(), self._store
        store.fold()
        store.tick()
        store.release_followers()
        wanted = dict.fromkeys(registry.kinds, 1)
        batch = store.lease(self._run_id, wanted, registry.kinds)
        self._next_due_s = batch.next_due_in_s
        found = []
        for lease in batch.leases:
            self._running = True
            try:
                found.append(self._run(registry, lease))
            finally:
                self._running = False
        if raises:
            for ran in found:
                if ran.error is not None and ran.outcome is Outcome.FAILED:
                    raise ran.error
        return found

    def _pause_s(self, *, ticks: bool) -> float | None:
        """Return the time to what falls due next, after `_turn` has found nothing."""
        pauses = [self._next_due_s]
        if ticks:
            pauses.append(self._store.tick().next_due_in_s)
        given = [pause_s for pause_s in pauses if pause_s is not None]
        return max(min(given), 0.001) if given else None

    def _run(self, registry: Registry, lease: Lease) -> Ran:
        """Run one attempt and settle it."""
        application = self._application(lease.kind)
        limits, policy = registry.limits(lease), registry.policy(lease.kind)
        fault, at_begin = self._take_fault(lease.kind)
        finished: Finished | None = None
        if not at_begin:
            finished = run_leased(
                application,
                self._store,
                self._run_id,
                lease,
                registry=registry,
                settings=self._settings,
                boottime_s=self.clock.boottime_s(),
                superseded=fault is Fault.LEASE_LOST,
            )
        if fault is not None or finished is None:
            finished = Finished(ending_of(fault or Fault.KILLED, limits), (), None)
        ending, added, error = finished
        if ending.throttled is not None:
            ending = registry.within_throttle_max(ending)
        settlement = account(lease, policy, ending, now_ms=self.clock.utc_ms())
        settlement = registry.with_followup(lease, settlement)
        if settlement.followup is not None:
            hook = msgspec.structs.replace(settlement.followup, trace=trace_of(lease))
            settlement = msgspec.structs.replace(settlement, followup=hook)
        if settlement.state is JobState.SUCCEEDED:
            settlement = msgspec.structs.replace(settlement, added=tuple(added))
        self._store.settle([settlement])
        stored = self._store.get(lease.id)
        state = settlement.state if stored is None else stored.state
        return Ran(
            lease.id, lease.kind, lease.attempt, state, settlement.outcome, error
        )

    def _take_fault(self, kind: str) -> tuple[Fault | None, bool]:
        for n, (fault, of, at_begin) in enumerate(self._faults):
            if of is None or of == kind:
                del self._faults[n]
                return fault, at_begin
        return None, False

    def _applications(self) -> Sequence[Registration]:
        return self._served or tuple(Registration.living)

    def _application(self, kind: str) -> Registration:
        for application in self._applications():
            if application.knows(kind):
                return application
        raise UsageError(
            f"no JobPool of this test has the kind {kind!r}; import the module that "
            "declares it"
        )

    def _begun(self) -> Registry:
        """Publish what the applications declare, if that has changed."""
        report = self._report()
        if self._registry is not None and report == self._reported:
            return self._registry
        pools = sorted({spec.pool for spec in report.handlers} | self._pools())
        sizes = find_settings(None)
        self._settings = settings = Settings(
            store=self._store.url,
            payload_max_bytes=sizes.payload_max_bytes,
            result_max_bytes=sizes.result_max_bytes,
            app="test",
            app_directory=str(Path.cwd()),
            pools=tuple(
                PoolSettings(name=name, size_min=1, size_max=1, limits=_LIMITS)
                for name in pools
            ),
        )
        self._registry, self._reported = Registry(settings, report), report
        if self._run_id:
            self._store.end_run(self._run_id)
        self._run_id = f"test-{next(self._numbers)}"
        run = Run(
            id=self._run_id,
            host="test",
            boot_id="test",
            pid=os.getpid(),
            pid_namespace=0,
            version=__version__,
            application=settings.app,
            app_version=self._run_id,
            pools=dict.fromkeys(pools, "1"),
            limits=self._registry.published,
        )
        self._store.begin_run(run, self._registry.records(), _FOR_EVER_S)
        self._store.publish_schedules(self._run_id, report.schedules)
        return self._registry

    def _pools(self) -> set[str]:
        """Return the pools of jobs that are in another than their kind's."""
        return {job.pool for job in self._stored() if job.state in UNFINISHED}

    def _report(self) -> AppReport:
        handlers: list[HandlerSpec] = []
        schedules: list[Declared] = []
        quotas: dict[str, Quota] = {}
        for application in self._applications():
            handlers += application.handler_specs()
            schedules += application.declared_schedules()
            quotas |= {one.name: one for one in application.declared_quotas()}
        kinds = [spec.kind for spec in handlers]
        if twice := {kind for kind in kinds if kinds.count(kind) > 1}:
            raise UsageError(
                f"the kind {min(twice)!r} is declared by several JobPools of this "
                "process; say which are meant: queue.serve(jobs)"
            )
        return AppReport(
            handlers=tuple(handlers),
            schedules=tuple(schedules),
            quotas=tuple(quotas.values()),
        )

    def _stored(self) -> list[StoredJob]:
        found = self._store.find(Filter(), _LISTED_MAX)
        return sorted(found, key=lambda job: job.id)

    def _is_of(self, job: StoredJob, wanted: NewJob) -> bool:
        """Say whether a job is of a call, options included."""
        if (job.kind, job.pool) != (wanted.kind, wanted.pool):
            return False
        if self._store.payload(job.id) != wanted.payload:
            return False
        for name in ("key", "unique", "tenant", "max_attempts"):
            value = getattr(wanted, name)
            if value is not None and getattr(job, name) != value:
                return False
        if wanted.priority and job.priority != wanted.priority:
            return False
        if wanted.run_at_ms is not None:
            return job.run_at_ms == wanted.run_at_ms
        return not wanted.delay_ms or (
            job.run_at_ms - job.created_at_ms == wanted.delay_ms
        )

    def _arguments(self, job_id: int) -> str:
        return _text(self._store.payload(job_id))

    def _listed(self, kind: str | None) -> str:
        """Say which jobs there are of a kind; if there are none, of others."""
        every = self._stored()
        listed = [job for job in every if kind in (None, job.kind)] or every
        if not listed:
            return "no job was enqueued at all"
        lines = [
            f"  job {one.id}: {one.state} {one.kind}{self._arguments(one.id)}"
            for one in listed[:_SHOWN_MAX]
        ]
        if len(listed) > _SHOWN_MAX:
            lines.append(f"  and {len(listed) - _SHOWN_MAX} more")
        return "\n".join(["there are:", *lines])


def _told(job: NewJob) -> str:
    return f"{job.kind}{_text(job.payload)}"


def _text(payload: bytes | None) -> str:
    return "" if payload is None else payload.decode(errors="backslashreplace")


class _Database(MemoryDatabase):
    """A database that is behind any connection."""

    def refuse(self, connection: Any) -> None:
        """Take it: what is there can be seen on it."""


class _Store(MemoryStore):
    """A store that takes jobs on any connection at once, as if it were committed."""

    def __init__(self, clock: FakeClock, on_enqueued: Any) -> None:
        super().__init__(
            _Database("test"),
            clock=clock,
            admission=Admission(),
            run_root=Path(os.devnull),  # there is no supervisor to wake
        )
        self._on_enqueued = on_enqueued

    def enqueue(
        self, jobs: Sequence[NewJob], connection: Any = None, *, wakes: bool = False
    ) -> list[Enqueued]:
        """See `Store.enqueue`."""
        del wakes
        answers = super().enqueue(jobs, connection)
        if self._on_enqueued is not None:
            self._on_enqueued()
        return answers

    @contextmanager
    def caller_transaction(self, connection: Any) -> Iterator[None]:
        """Commit or roll back the caller's connection; its jobs are stored at once."""
        try:
            yield
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def wake(self) -> None:
        """Wake nobody."""
