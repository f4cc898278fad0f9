"""Runs leased jobs in the main thread, and accounts for their ends as the machine does.

A second Ctrl-C interrupts the running handler: the only way in which it can be ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from jobpool.core.application import reports
from jobpool.core.application.app_report import AppReport
from jobpool.core.clock import Clock
from jobpool.core.config.settings import Settings
from jobpool.core.events.event import Observer
from jobpool.core.events.figures import AttemptUnsuccessful, ReportsLeft
from jobpool.core.events.jobs import JobSucceeded
from jobpool.core.jobs.job import Evidence, Lease, Start
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending
from jobpool.sandbox.app_loader import Application
from jobpool.sandbox.protocol.messages import Done
from jobpool.sandbox.protocol.verdict import verdict_of_done
from jobpool.supervisor.dev.attempt import encoding_of, run_attempt
from jobpool.supervisor.dev.channel import StoreChannel, UseStore
from jobpool.supervisor.dev.limits import LimitWatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.accounting import Accounting
from jobpool.supervisor.machine.attempts.progress import ProgressReports
from jobpool.supervisor.machine.attempts.running import run_job
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.state import details
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.recent_ends import RecentEnds
from jobpool.supervisor.machine.state.slot import Assigned
from jobpool.supervisor.machine.state.step import Step
from jobpool.supervisor.machine.state.usage import Usage

T = TypeVar("T")
_INTERRUPTED = "interrupted by a second Ctrl-C, in jobpool dev"
_BY_ITSELF = "its handler raised KeyboardInterrupt, in jobpool dev"
_CANCELED = "was canceled while it ran; in jobpool dev it ended by itself"


class Attempts:
    """The attempts of this process, one at a time.

    Args:
        application: has the handlers.
        settings: of this process.
        report: what the application declares.
        run_id: the run that holds the leases.
        use: reaches the store.
        leave: leaves commands with the store thread.
        watch: watches what runs.
        observer: gets the events.
        clock: all three clocks.
    """

    def __init__(
        self,
        application: Application,
        settings: Settings,
        report: AppReport,
        *,
        run_id: str,
        use: UseStore,
        leave: Callable[[Iterable[cmd.Command]], None],
        watch: LimitWatch,
        observer: Observer,
        clock: Clock,
    ) -> None:
        self.registry = Registry(settings, report)
        self._watch = watch
        self._application = application
        self._settings = settings
        self._run_id = run_id
        self._use = use
        self._leave = leave
        self._observer = observer
        self._clock = clock
        self._step = step = Step(
            reports_successes=observer.hears(JobSucceeded),
            details=observer.hears(AttemptUnsuccessful),
        )
        reports.want(wanted=observer.hears(ReportsLeft))
        step.registry = self.registry
        self._pools = {
            pool.name: Pool(pool, number) for number, pool in enumerate(settings.pools)
        }
        for pool in self._pools.values():
            pool.slots[0].app_version = self.registry.app_version
        progress, usage = ProgressReports(step), Usage()
        self._accounting = Accounting(step, self._pools, progress, usage, RecentEnds())
        self._can_interrupt = self._was_asked = False

    @property
    def unsettled(self) -> int:
        """How many ends the store has not taken yet."""
        return self._step.unsettled

    def run(self, lease: Lease) -> None:
        """Run a leased job to its end, and have that written."""
        self._set_time()
        step, registry = self._step, self.registry
        slot = self._pools[lease.pool].slots[0]
        job = Assigned(
            lease,
            registry.policy(lease.kind),
            registry.limits(lease),
            leased_s=step.now_s,
            slept_s=step.slept_s,
        )
        slot.seq += 1
        job.seq, job.trace = slot.seq, step.trace_of(lease)
        job.sent_s = job.started_s = step.now_s
        if step.details:
            step.report(details.tick_begun(step.now_ms, lease, registry))
            self.carry_out()
        encoding = encoding_of(self._application, lease.codec)
        channel = StoreChannel(
            self._use,
            self._run_id,
            lease,
            registry=registry,
            settings=self._settings,
            encoding=encoding,
            codec=self._application.named_codec,
            stopping=lambda: bool(self._watch.ending),
            record=lambda news: self._leave([cmd.Record(news)]),
        )
        began_s = step.now_s + step.slept_s
        self._leave([cmd.NoteStart(Start(lease.id, lease.token, slot.name, began_s))])
        self._watch.begin(job, channel)
        finished = self._interruptibly(
            lambda: run_attempt(
                self._application,
                run_job(job, None),
                channel,
                encoding,
                result_max_bytes=self._settings.result_max_bytes,
            )
        )
        self._watch.end()
        channel.close()
        job.reports = reports.take()
        self._set_time()
        done: Done | None = None
        if finished is None:
            ending = self._interrupted(job, slot.name)
        else:
            done = finished.done
            done.completed = channel.completed
            done.added = channel.added() if done.ok else []
            ending = self._verdict(lease, done, slot.name)
        self._accounting.end(slot, job, ending, done)
        self.carry_out()

    def hand_back(self, leases: Iterable[Lease]) -> None:
        """Give leases back whose attempts have not begun."""
        self._set_time()
        self._step.hand_back(leases)
        self.carry_out()

    def settled(self, event: inp.Settled) -> None:
        """The store has answered for ends."""
        self._set_time()
        self._step.unsettled -= event.count
        self._accounting.completions.settled(
            event.completed, event.unfinished, event.stale, event.handed_on
        )
        self.carry_out()

    def interrupt(self) -> None:
        """Interrupt the running handler; for a signal handler.

        Raises:
            KeyboardInterrupt: one is running.
        """
        if self._can_interrupt:
            self._was_asked = True
            raise KeyboardInterrupt

    def carry_out(self) -> None:
        """Tell the observer and the store what has been decided."""
        commands = self._step.take()
        for command in commands:
            if isinstance(command, cmd.Observe):
                self._observer.observe(command.event)
        self._leave([one for one in commands if not isinstance(one, cmd.Observe)])

    def _interruptibly(self, run: Callable[[], T]) -> T | None:
        """Return what *run* returns; None: it was interrupted."""
        try:
            try:
                self._can_interrupt, self._was_asked = True, False
                return run()
            finally:
                self._can_interrupt = False
        except KeyboardInterrupt:
            return None

    def _interrupted(self, job: Assigned, slot_name: str) -> Ending:
        duration_s = self._step.now_s - (job.started_s or self._step.now_s)
        reason = _INTERRUPTED if self._was_asked else _BY_ITSELF
        evidence = Evidence(reason=reason, duration_s=duration_s, slot=slot_name)
        return Ending(outcome=Outcome.INTERRUPTED, evidence=evidence)

    def _verdict(self, lease: Lease, done: Done, slot_name: str) -> Ending:
        ending = verdict_of_done(done, slot_name, encoded=lease.codec is not None)
        # Of the memory it is only known what the whole process takes.
        evidence = msgspec.structs.replace(ending.evidence, peak_rss_bytes=None)
        has_failed = ending.outcome is not Outcome.SUCCEEDED and not done.completed
        if has_failed and lease.token in self._watch.canceled:
            evidence = msgspec.structs.replace(evidence, reason=_CANCELED)
            return Ending(outcome=Outcome.CANCELED, evidence=evidence)
        known: Ending = msgspec.structs.replace(ending, evidence=evidence)
        return known

    def _set_time(self) -> None:
        clock = self._clock
        now_s = clock.monotonic_s()
        self._step.set_time(now_s, clock.utc_ms(), clock.boottime_s() - now_s)
