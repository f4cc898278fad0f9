"""The real store in memory, behind a link that fails, with a record of its commits.

Theory of operation. Every request takes its time on the way there and back. Its changes
happen at one time in between, all of them or none, as a database promises. A link may
lose a request (nothing happened), the answer to one (it has happened, and the caller
does not know), be slow, or let nothing through for a while. What was committed goes to
the history; what was undone does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from jobpool.core.clock import Clock
from jobpool.core.config.settings import Retention
from jobpool.core.jobs.flow import EnqueuedFlow, NewFlow
from jobpool.core.jobs.job import (
    JobState,
    NewJob,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    RequestReport,
    Settlement,
    Throttle,
)
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.admission import Admission
from jobpool.core.rules.quotas.breaker import BreakerChange
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.errors import FeatureHeldBack, OutcomeUnknown, StoreUnavailable
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.flows import Folded
from jobpool.store.records.jobs import LeaseBatch, Receipt
from jobpool.store.records.schedules import Published, Ticked
from simulation.fairness import dealt, given_back
from simulation.host import RunPath
from simulation.kernel import Kernel, Process
from support.store.history import (
    Approved,
    Deleted,
    Dropped,
    Expired,
    FlowCanceled,
    Granted,
    Operated,
    Record,
    Refilled,
    Settled,
)

if TYPE_CHECKING:
    from simulation.world import World

TRIP_S = 0.001
PATIENCE_S = 10.0
ANSWER_SHARE = 0.3
"""Of the answers take their time even where nothing is wrong."""


class Link:
    """The way from one supervisor, or producer, to the store."""

    def __init__(self, kernel: Kernel, process: Process) -> None:
        self._kernel = kernel
        self.process = process
        self.cut_until_s = 0.0
        """Nothing comes through before."""
        self.lost_share = 0.0
        """Of the requests: nothing happens, and that is known."""
        self.mute_share = 0.0
        """Of the answers: what was committed is not known to be."""
        self.slow_s = 0.0
        self.faulty_until_s = 0.0
        self.at: dict[str, Callable[[], None]] = {}
        """What happens, once, when its process comes to a point: ``granted``, jobs were
        leased and it does not know yet; ``settling``, it is about to write ends."""

    def there(self) -> None:
        """Carry a request.

        Raises:
            StoreUnavailable: it did not arrive.
        """
        kernel = self._kernel
        kernel.step(self.process)
        kernel.sleep(self._trip_s())
        if kernel.now_s < self.cut_until_s:
            kernel.sleep(min(PATIENCE_S, self.cut_until_s - kernel.now_s))
            kernel.sometimes["the store was cut off"] += 1
            raise StoreUnavailable("nothing comes through")
        if self._has_bad_luck(self.lost_share):
            kernel.sometimes["a request was lost"] += 1
            raise StoreUnavailable("the request was lost")

    def back(self) -> None:
        """Carry an answer.

        Raises:
            OutcomeUnknown: it was lost.
        """
        kernel = self._kernel
        if self._is_slow_today():
            kernel.sleep(self._trip_s())
        kernel.step(self.process)
        if kernel.now_s < self.cut_until_s or self._has_bad_luck(self.mute_share):
            kernel.sometimes["the answer to a commit was lost"] += 1
            raise OutcomeUnknown("the answer was lost")

    def pass_point(self, name: str) -> bool:
        """Reach a named point; what waits there happens, and may stop the process.

        Returns:
            Whether something did. An answer that was on its way has arrived meanwhile.
        """
        act = self.at.pop(name, None)
        if act is not None:
            act()
            self._kernel.sleep(0.0)
        return act is not None

    def _is_slow_today(self) -> bool:
        """Say whether others get a turn between a commit and its answer."""
        kernel = self._kernel
        return (
            kernel.now_s < self.faulty_until_s
            or self.process.dies_at_step > 0
            or kernel.random.random() < ANSWER_SHARE
        )

    def _trip_s(self) -> float:
        kernel = self._kernel
        longest_s = TRIP_S
        if self.slow_s and kernel.now_s < self.faulty_until_s:
            longest_s = self.slow_s
        return kernel.random.random() * longest_s

    def _has_bad_luck(self, share: float) -> bool:
        kernel = self._kernel
        if not share or kernel.now_s >= self.faulty_until_s:
            return False
        return kernel.random.random() < share


class SimDatabase(MemoryDatabase):
    """The database. It never forks here, so it need not check the pid at every turn."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.canceled: list[int] = []
        """Members of flows that were canceled within this transaction."""

    def put_job(self, former: Row | None, row: Row) -> None:
        """See `MemoryDatabase.put_job`."""
        super().put_job(former, row)
        if row.step is not None and former is not None:
            canceled = JobState.CANCELED
            if row.state is canceled and former.state is not canceled:
                self.canceled.append(row.id)

    def check_process(self) -> None:
        """See `MemoryDatabase.check_process`."""


class _Request(AbstractContextManager[None]):
    """A store's next request; there is one at a time."""

    def __init__(self, store: SimStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store.arrive()

    def __exit__(self, *failure: object) -> None:
        self._store.leave(*failure)


_WITHIN: AbstractContextManager[None] = nullcontext()
"""Something that is done within a request."""


class SimStore(MemoryStore):
    """A store object of one thread; requests go through its link."""

    def __init__(
        self,
        world: World,
        database: MemoryDatabase,
        *,
        clock: Clock,
        link: Link,
        root: RunPath,
        run: str,
    ) -> None:
        super().__init__(
            database, clock=clock, admission=Admission(depth_max=10_000), run_root=root
        )
        self._world = world
        self._link = link
        self._run = run
        self._is_within = False
        self._tells_outdated = False
        """The answer on its way says that the run is outdated."""
        self._request = _Request(self)
        self._written: list[Record] = []

    @property
    def one_host(self) -> bool:
        """See `Store.one_host`."""
        return not self._world.plan.shared

    def transaction(self) -> AbstractContextManager[None]:
        """See `Store.transaction`."""
        return _WITHIN if self._is_within else self._request

    def arrive(self) -> None:
        """Carry a request there, and begin what it does."""
        self._link.there()
        self._is_within = True
        self._tells_outdated = False
        self._written.clear()
        self._session.writing.__enter__()

    def leave(self, *failure: Any) -> None:
        """End what a request does, and carry the answer back."""
        try:
            self._session.writing.__exit__(*failure)
        finally:
            self._is_within = False
        if failure[0] is not None:
            return
        for record in self._written:
            self._world.note(record)
        granted = any(type(record) is Granted for record in self._written)
        if not (granted and self.pass_point("granted")):
            self._link.back()
        if self._tells_outdated:
            self._world.versions.told(self._run)

    def pass_point(self, name: str) -> bool:
        """Reach a named point; say whether something waited there."""
        return self._link.pass_point(name)

    def _note(self, record: Record) -> None:
        self._written.append(record)

    def _now_s(self) -> float:
        return self._world.kernel.now_s

    # -- what is watched ---------------------------------------------------------------

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
        """See `Store.lease`."""
        with self.transaction():
            self._world.database.canceled.clear()
            batch = super().lease(
                run_id,
                wanted,
                kinds,
                suspects=suspects,
                alone=alone,
                ahead=ahead,
                slow_s=slow_s,
            )
            self._world.versions.leased(self._database.runs[run_id], len(batch.leases))
            self._tells_outdated = batch.outdated
            self._note_dropped()
            for lease in batch.leases:
                self._note(
                    Granted(
                        at_s=self._now_s(),
                        run=run_id,
                        job=lease.id,
                        token=lease.token,
                        attempt=lease.attempt,
                        store_ms=self._clock.utc_ms(),
                    )
                )
                row = self._database.jobs[lease.id]
                for took in self._world.quotas.leased(run_id, row, lease.token):
                    self._note(took)
            for record in dealt(self._world, kinds, batch.leases):
                self._note(record)
        return batch

    def settle(self, settlements: Sequence[Settlement]) -> list[Receipt]:
        """See `Store.settle`; another open transaction may hold a job."""
        if not settlements:
            return []
        with self.transaction():
            jobs, receipts = self._database.jobs, []
            for one in settlements:
                before = jobs.get(one.id)
                if self._world.completions.stands(one.id, one.token):
                    receipt = Receipt.COMPLETED
                    self._end_permits(one.token)
                elif self._world.is_locked(one.id):
                    self._world.sometimes["an open transaction held a job"] += 1
                    receipt = Receipt.LATER
                else:
                    (receipt,) = super().settle([one])
                receipts.append(receipt)
                if receipt is Receipt.ACCEPTED:
                    for record in given_back(self._world, one, before):
                        self._note(record)
                self._note_end(one, receipt, before, jobs.get(one.id))
        return receipts

    def _note_end(
        self, one: Settlement, receipt: Receipt, before: Row | None, after: Row | None
    ) -> None:
        held = None if before is None else before.held
        holder = None if held is None else self._database.runs.get(held.run_id)
        self._note(
            Settled(
                at_s=self._now_s(),
                by=self._run,
                job=one.id,
                token=one.token,
                receipt=receipt.name.lower(),
                outcome=one.outcome and one.outcome.value,
                state="" if after is None else after.state.value,
                changed=before is not after,
                holder="" if held is None else held.run_id,
                holder_until_ms=0 if holder is None else holder.lease_until_ms,
                store_ms=self._clock.utc_ms(),
                hooked=one.followup is not None,
                wanted=one.state.value,
                canceled=held is not None and held.cancel_requested,
                presumed=self._is_presumed(held.run_id if held else self._run),
                costs=_costs(one),
            )
        )
        if one.followup is not None and receipt is Receipt.ACCEPTED:
            self._world.sometimes["a hook's job was stored"] += 1

    def _is_presumed(self, holder: str) -> bool:
        """Say whether a run's marks were useless to whichever run took its jobs."""
        if holder == self._run:
            return False
        here, there = self._world.run_of(self._run), self._world.run_of(holder)
        return here.host is not there.host or there.boot_id != here.host.boot_id

    def _expire(self, row: Row, now_ms: int) -> None:
        super()._expire(row, now_ms)
        self._world.sometimes["a job expired"] += 1
        self._note(Expired(at_s=self._now_s(), job=row.id, store_ms=now_ms))

    def prune(self, retention: Retention, limit: int = 1000) -> int:
        """See `Store.prune`; what is deleted stays in the record as it was."""
        with self.transaction():
            jobs = self._database.jobs
            before = list(jobs.newest_first())
            count = super().prune(retention, limit)
            for row in before:
                if jobs.get(row.id) is None:
                    self._world.sometimes["a job was deleted"] += 1
                    self._world.deleted.append(row)
                    store_ms = self._clock.utc_ms()
                    self._note(
                        Deleted(at_s=self._now_s(), job=row.id, store_ms=store_ms)
                    )
        return count

    # -- flows -------------------------------------------------------------------------

    def enqueue_flow(
        self,
        flow: NewFlow,
        members: Iterable[tuple[int, NewJob]],
        connection: Any = None,
        *,
        wakes: bool = False,
    ) -> EnqueuedFlow:
        """See `Store.enqueue_flow`."""
        with self.transaction():
            stored = super().enqueue_flow(flow, members, connection, wakes=wakes)
            if stored.created:
                self._note(self._world.flows.stored(flow, stored.id))
        return stored

    def fold(self, limit: int = 1000) -> Folded:
        """See `Store.fold`."""
        with self.transaction():
            self._world.database.canceled.clear()
            folded = super().fold(limit)
            self._note_dropped()
        return folded

    def cancel_flow(self, flow_id: int) -> bool:
        """See `Store.cancel_flow`."""
        with self.transaction():
            is_done = super().cancel_flow(flow_id)
            if is_done:
                self._note(FlowCanceled(at_s=self._now_s(), flow=flow_id))
        return is_done

    def retry_flow(self, flow_id: int, jobs: Sequence[int] = ()) -> bool:
        """See `Store.retry_flow`."""
        with self.transaction():
            self._world.database.canceled.clear()
            before = self._world.flows.members(flow_id)
            is_done = super().retry_flow(flow_id, jobs)
            if is_done:
                self._note_dropped()
                self._note_retried(flow_id, before, is_whole=not jobs)
        return is_done

    def _note_retried(
        self, flow_id: int, before: Mapping[int, Row], *, is_whole: bool
    ) -> None:
        after = self._world.flows.members(flow_id)
        for job, row in after.items():
            former = before.get(job)
            if former is None:
                self._note(self._world.flows.made_again(row))
            elif former.finished_at_ms is not None and row.finished_at_ms is None:
                self._note(self._operated("revive", former, row))
        self._note(self._world.flows.retried(flow_id, is_whole=is_whole))

    def approve(
        self, job_id: int, result: bytes | None = None, codec: str | None = None
    ) -> bool:
        """See `Store.approve`."""
        with self.transaction():
            is_done = super().approve(job_id, result, codec)
            if is_done:
                self._note(Approved(at_s=self._now_s(), job=job_id))
        return is_done

    def _note_dropped(self) -> None:
        """Note which members a fold has canceled, which is the only one to do so."""
        expired = {one.job for one in self._written if type(one) is Expired}
        for job in self._world.database.canceled:
            if job not in expired:
                self._world.sometimes["a member was dropped"] += 1
                self._note(Dropped(at_s=self._now_s(), job=job))

    # -- quotas ------------------------------------------------------------------------

    def take_permits(
        self, run_id: str, asks: Sequence[PermitAsk]
    ) -> list[PermitAnswer]:
        """See `Store.take_permits`."""
        with self.transaction():
            answers = super().take_permits(run_id, asks)
            for ask, answer in zip(asks, answers, strict=True):
                for took in self._world.quotas.granted(run_id, ask, answer):
                    self._note(took)
        return answers

    def return_permits(self, returns: Sequence[PermitReturn]) -> None:
        """See `Store.return_permits`."""
        with self.transaction():
            super().return_permits(returns)
            self._world.quotas.given_back(returns)

    def report_requests(self, reports: Sequence[RequestReport]) -> list[BreakerChange]:
        """See `Store.report_requests`."""
        with self.transaction():
            changes = super().report_requests(reports)
            for change in changes:
                self._note(self._world.quotas.turned(change, self._clock.utc_ms()))
        return changes

    def _block(self, block: Throttle) -> None:
        super()._block(block)
        self._note(self._world.quotas.blocked(block))

    def reset_quota(self, name: str) -> bool:
        """See `Store.reset_quota`."""
        with self.transaction():
            is_done = super().reset_quota(name)
            self._note(Refilled(at_s=self._now_s(), quota=name))
        return is_done

    # -- schedules ---------------------------------------------------------------------

    def tick(self, limit: int | None = None) -> Ticked:
        """See `Store.tick`; nobody asks where there are no schedules."""
        schedules = self._world.schedules
        if not schedules.has_any:
            return Ticked()
        with self.transaction():
            before, now_ms = schedules.before(), self._clock.utc_ms()
            done = super().tick(limit)
            for call in schedules.stepped(before, now_ms):
                self._note(call)
        return done

    def publish_schedules(
        self, run_id: str, declared: Sequence[Declared], *, again: bool = False
    ) -> Published:
        """See `Store.publish_schedules`."""
        if not self._world.schedules.has_any:
            return Published(is_newest=False)
        with self.transaction():
            found = super().publish_schedules(run_id, declared, again=again)
            has_changed = bool(found.added or found.changed or found.retired)
            self._world.schedules.published(run_id, has_changed=has_changed)
        return found

    def _cancel(self, job_id: int, now_ms: int) -> bool:
        jobs = self._database.jobs
        before = jobs.get(job_id)
        is_canceled = super()._cancel(job_id, now_ms)
        after = jobs.get(job_id)
        if is_canceled and before is not None and after is not None:
            self._world.sometimes["a job was canceled for a tick"] += 1
            self._note(self._operated("cancel", before, after))
        return is_canceled

    def wake(self) -> None:
        """See `Store.wake`: a hint, which may be lost."""
        self._world.wake()

    def store_part(self, settlement: Settlement) -> bool:
        """See `Store.store_part`: there is no disk to wait for."""
        del settlement
        return False

    def scrub(self, after_id: int | None) -> int | None:
        """See `Store.scrub`: nothing else writes here."""
        del after_id
        return None

    def damaged_rows(self) -> list[str]:
        """See `Store.damaged_rows`."""
        return []

    def tidy(self, *, waited_for: bool = False) -> None:
        """See `Store.tidy`: there is nothing to do."""
        del waited_for

    def wait_for_wake(self, timeout_s: float) -> bool:
        """See `SharedStore.wait_for_wake`."""
        self._world.kernel.sleep(timeout_s)
        return False

    def close(self) -> None:
        """See `Store.close`."""
        self._session.close()

    def require(self, wanted: int) -> None:
        """See `Store.require`: the wish is committed, whatever the answer."""
        held_back: FeatureHeldBack | None = None
        with self.transaction():
            try:
                super().require(wanted)
            except FeatureHeldBack as error:
                held_back = error
        if held_back is not None:
            raise held_back

    # -- operators ---------------------------------------------------------------------

    def operate(self, what: str, job: int) -> None:
        """Cancel or revive a job, on the record."""
        with self.transaction():
            jobs = self._database.jobs
            before = jobs.get(job)
            if what == "cancel":
                changed = super().cancel([job])
            else:
                states = (
                    JobState.PENDING,
                    JobState.DEAD,
                    JobState.QUARANTINED,
                    JobState.CANCELED,
                )
                changed = super().revive([job], states)
            after = jobs.get(job)
            if changed and before is not None and after is not None:
                self._note(self._operated(what, before, after))

    def _operated(self, what: str, before: Row, after: Row) -> Operated:
        return Operated(
            at_s=self._now_s(),
            job=after.id,
            what=what,
            before=before.state.value,
            after=after.state.value,
            store_ms=self._clock.utc_ms(),
        )


def _through_link(name: str) -> Any:
    """Return a method that does its work within a request."""

    def request(self: SimStore, *args: Any, **named: Any) -> Any:
        with self.transaction():
            return getattr(MemoryStore, name)(self, *args, **named)

    return request


for _name in (
    "begin_run",
    "renew",
    "confirm",
    "end_run",
    "pause_flow",
    "resume_flow",
    "grant_format",
    "open_runs",
    "expired_runs",
    "seize",
    "record",
    "begin_attempts",
    "cancel_requests",
    "leases_of",
    "enqueue",
    "due",
    "waiting",
    "sample_waits",
    "pause",
    "resume",
    "block_buckets",
    "set_quota",
    "set_tenant",
    "remove_tenant",
    "quotas",
    "put_schedule",
    "pause_schedule",
    "resume_schedule",
    "remove_schedule",
):
    setattr(SimStore, _name, _through_link(_name))


def _costs(one: Settlement) -> str:
    """Say which budget an end is charged to."""
    if one.charge.recovery:
        return "a recovery"
    is_free = one.outcome is Outcome.LOST and not one.charge.interruption
    return "nothing" if is_free else "itself"
