"""Takes back the jobs of dead supervisors: once they are proven dead.

Theory of operation. A thread of its own looks at the open runs in the store. On one
host no lease expires by time: a run is dead when its lock is free, every process on
its record is gone, and no process carries its marker; survivors are killed first
(`sandbox.proof`). Then the jobs whose marks say that they were really running are
settled as lost, and the others handed back, under their old tokens: a late word of
anybody else changes nothing. What cannot be proven stays leased, with an alarm. What a
loss costs, and who is a suspect after it, is `core.suspicion`'s table.

In a store that several hosts share, that is the rule for the runs whose directory is
here, and the only one. A run of another host cannot be proven anything: it is presumed
dead when its leases have run out by the store's clock, for a living one has ended its
own jobs by then (`fencing`). Its jobs are taken, but it stays open: it may come back.
Not so after an outage of the store, when the leases of the living ran out as well.

Run directories that no open run owns (their supervisor died while it tidied up) are
removed once they, too, are proven dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from jobpool.core import events as ev
from jobpool.core.cautionevents import JobSuspected
from jobpool.core.clock import Clock
from jobpool.core.job import Evidence, Lease, Settlement
from jobpool.core.lifecycle import Ending, account, hand_back
from jobpool.core.outcome import Outcome
from jobpool.core.policy import Policy
from jobpool.core.suspicion import LOSSES, Death, Standing, death_of, standing_of
from jobpool.sandbox.identity import DeadRun, Unproven, prove_dead, remove_run
from jobpool.store.base import Store
from jobpool.store.records import Receipt, Run
from jobpool.supervisor import cautionmessages as cm
from jobpool.supervisor import messages as m
from jobpool.supervisor import notices
from jobpool.supervisor.registry import Registry
from jobpool.supervisor.storethread import StoreThread

T = TypeVar("T")
EVERY_S = 1.0
EXPIRED_EVERY_S = 0.25
"""Between two looks for runs of other hosts whose leases have run out."""
FORGOTTEN_MS = 86_400_000
"""An open run that has been expired for so long, and holds nothing, is ended."""
ALARM_EVERY_S = 60.0
TIDY_EVERY = 60
"""Looks between two searches for directories that nobody owns."""
_DIED = "its supervisor or host died while it ran"
_REASONS = {
    Standing.UNSUSPECTED: _DIED,
    Standing.LOST_BEFORE: f"{_DIED}, not for the first time",
    Standing.BESIDE: f"{_DIED}, and so did a suspect",
    Standing.ON_PROBATION: f"{_DIED} alone, on probation",
}


class Reclaimer(threading.Thread):
    """Looks for dead runs now and then.

    Args:
        run: this supervisor's own.
        store: does what is the store's; must have been opened.
        may_take: whether runs that seem to have expired really have; asked in the
            store thread.
        registry: the kinds' policies.
        post: takes events.
        clock: for the times of events.
    """

    def __init__(
        self,
        run: Run,
        *,
        store: StoreThread,
        may_take: Callable[[], bool],
        registry: Callable[[], Registry | None],
        post: Callable[[m.SupervisorEvent | ev.Event], None],
        clock: Clock,
    ) -> None:
        super().__init__(name="jobpool-reclaim", daemon=True)
        self._own = run
        self._root = store.run_root
        self._store = store
        self._may_take = may_take
        self._registry = registry
        self._post = post
        self._clock = clock
        self._closing = threading.Event()
        self._alarmed_s: dict[str, float] = {}

    def run(self) -> None:
        """Look, prove, reclaim, until closed."""
        shared = self._store.shared
        every_s = EXPIRED_EVERY_S if shared else EVERY_S
        full_every = round(EVERY_S / every_s)
        looks = 0
        while not self._closing.is_set():
            try:
                if looks % full_every == 0:
                    self._look_for_dead(tidy=looks % (full_every * TIDY_EVERY) == 0)
                if shared:
                    self._look_for_expired()
            except (OSError, ValueError) as exc:
                text = f"looking for dead runs failed: {exc!r}; trying again"
                self._post(ev.Alarm(at_ms=self._clock.utc_ms(), text=text))
            looks += 1
            self._closing.wait(every_s)

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def _ask(self, question: Callable[[Store], T]) -> T | None:
        """Ask the store thread; None: no answer."""
        answer: list[T] = []
        answered = threading.Event()

        def chore(store: Store) -> Sequence[ev.Event]:
            try:
                answer.append(question(store))
            finally:
                answered.set()
            return ()

        self._store.chore(chore)
        while not answered.wait(EVERY_S):
            if self._closing.is_set():
                return None
        return answer[0] if answer else None

    # -- runs of this host ---------------------------------------------------------

    def _look_for_dead(self, *, tidy: bool) -> None:
        runs = self._ask(lambda store: store.open_runs())
        if runs is None:
            return
        for run in runs:
            if run.id == self._own.id:
                continue
            if self._is_provable(run):
                self._consider(run)
            elif run.lease_until_ms + FORGOTTEN_MS < self._clock.utc_ms():
                self._store.chore(partial(_forget, run_id=run.id))
        if tidy:
            self._tidy({run.id for run in runs})

    def _is_provable(self, run: Run) -> bool:
        """Say whether a run is dead when it is proven dead, and only then."""
        if not self._store.shared:
            # Host names change, with every container for one; here all are of one.
            return True
        return run.boot_id == self._own.boot_id and Path(self._root, run.id).is_dir()

    def _consider(self, run: Run) -> None:
        same_boot = run.boot_id == self._own.boot_id
        proof = prove_dead(self._root, run.id, same_boot=same_boot)
        if isinstance(proof, DeadRun):
            self._store.chore(lambda store: self._reclaim(store, run, proof))
        elif isinstance(proof, Unproven):
            self._alarm(run, proof.reason)

    def _tidy(self, owned: set[str]) -> None:
        """Remove run directories whose run has ended, or never began."""
        for path in self._root.iterdir():
            if path.name in owned or path.name == self._own.id:
                continue
            if isinstance(prove_dead(self._root, path.name), DeadRun):
                remove_run(self._root, path.name)

    def _alarm(self, run: Run, reason: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._alarmed_s.get(run.id, -ALARM_EVERY_S) < ALARM_EVERY_S:
            return
        self._alarmed_s[run.id] = now_s
        self._post(
            ev.Alarm(
                at_ms=self._clock.utc_ms(),
                text=f"run {run.id} (pid {run.pid} on {run.host}) may or may not be "
                f"alive, so its jobs stay leased: {reason}. Once you are sure that "
                f"nothing of it lives: jobpool reclaim {run.id}",
            )
        )

    def _reclaim(
        self, store: Store, run: Run, proof: DeadRun
    ) -> Sequence[ev.Event | cm.HostKilled]:
        """Take a dead run's jobs back; runs in the store thread."""
        taken = _take_back(
            store,
            run,
            running=proof.running_tokens,
            registry=self._registry(),
            now_ms=self._clock.utc_ms(),
            with_host=run.boot_id != self._own.boot_id,
        )
        if taken.later == 0:
            remove_run(self._root, run.id)
        return taken.said(run, self._clock.utc_ms(), killed=proof.killed)

    # -- runs of other hosts -------------------------------------------------------

    def _look_for_expired(self) -> None:
        for run in self._ask(lambda store: store.expired_runs()) or ():
            if run.id != self._own.id and not self._is_provable(run):
                self._store.chore(partial(self._take_expired, run=run))

    def _take_expired(
        self, store: Store, run: Run
    ) -> Sequence[ev.Event | cm.HostKilled]:
        """Take the jobs of a run that is presumed dead; runs in the store thread."""
        if not self._may_take():
            return ()
        now_ms = self._clock.utc_ms()
        with store.transaction():
            if not store.seize(run.id, by=self._own.id):
                return ()
            taken = _settle_all(
                store, run, running=None, registry=self._registry(), now_ms=now_ms
            )
        store.ring()
        return taken.said(run, now_ms, presumed=True)


class _Taken(NamedTuple):
    """What became of a run's leases."""

    lost: int
    handed_back: int
    later: int
    """Held by somebody's open transaction: they are still the run's."""
    about_jobs: list[ev.Event | cm.HostKilled]

    def said(
        self, run: Run, at_ms: int, *, killed: int = 0, presumed: bool = False
    ) -> list[ev.Event | cm.HostKilled]:
        """Return what is to be said of it; nothing of what waits for the next look."""
        waits = self.later > 0 or presumed
        if waits and self.lost + self.handed_back == 0:
            return []
        event = ev.RunReclaimed(
            at_ms=at_ms,
            run_id=run.id,
            host=run.host,
            pid=run.pid,
            handed_back=self.handed_back,
            lost=self.lost,
            killed=killed,
            presumed=presumed,
        )
        return [*self.about_jobs, event]


def reclaim(
    store: Store,
    run: Run,
    *,
    running: frozenset[int] | None,
    registry: Registry | None = None,
    now_ms: int,
) -> list[ev.Event]:
    """Settle everything that a dead run holds, and end the run.

    Args:
        store: where its jobs are.
        run: the run; nothing of it may be alive.
        running: tokens of the attempts that were really running; None: all may be.
        registry: the kinds' policies; None: the defaults.
        now_ms: the store's clock.

    Returns:
        What is to be said about it.

    Raises:
        StoreUnavailable: nothing was changed.
    """
    taken = _take_back(store, run, running=running, registry=registry, now_ms=now_ms)
    said = [one for one in taken.said(run, now_ms) if isinstance(one, ev.Event)]
    if taken.later:
        text = (
            f"{taken.later} jobs of run {run.id} are held by an open transaction and "
            "stay leased; reclaim it again once that has ended"
        )
        said.append(ev.Alarm(at_ms=now_ms, text=text))
    return said


def _take_back(
    store: Store,
    run: Run,
    *,
    running: frozenset[int] | None,
    registry: Registry | None,
    now_ms: int,
    with_host: bool = False,
) -> _Taken:
    """Settle what a dead run holds; end the run if that was all."""
    with store.transaction():
        taken = _settle_all(
            store,
            run,
            running=running,
            registry=registry,
            now_ms=now_ms,
            with_host=with_host,
        )
        if taken.later == 0:
            store.end_run(run.id)
    store.ring()
    return taken


def _settle_all(
    store: Store,
    run: Run,
    *,
    running: frozenset[int] | None,
    registry: Registry | None,
    now_ms: int,
    with_host: bool = False,
) -> _Taken:
    leases = store.leases_of(run.id)
    if running is None:
        running = frozenset(one.token for one in leases)
    ran = [one for one in leases if one.token in running]
    death = death_of(store.note_death(run.id, len(ran), with_host=with_host))
    is_trial = any(one.suspect for one in ran)
    settlements = [
        _verdict(one, death, registry, beside_suspect=is_trial, now_ms=now_ms)
        if one.token in running
        else hand_back(one)
        for one in leases
    ]
    receipts = store.settle(settlements)
    about_jobs: list[ev.Event | cm.HostKilled] = []
    lost = handed_back = 0
    for lease, settlement, receipt in zip(leases, settlements, receipts, strict=True):
        if receipt is not Receipt.ACCEPTED:
            continue
        if settlement.outcome is None:
            handed_back += 1
        else:
            lost += 1
            about_jobs += _about(lease, settlement, now_ms)
    return _Taken(lost, handed_back, receipts.count(Receipt.LATER), about_jobs)


def _about(
    lease: Lease, settlement: Settlement, now_ms: int
) -> Iterator[ev.Event | cm.HostKilled]:
    """Yield what is to be said of a job that was lost."""
    yield from notices.job_set_aside(now_ms, lease, settlement)
    if settlement.suspect:
        yield JobSuspected(
            at_ms=now_ms,
            id=lease.id,
            kind=lease.kind,
            recoveries=lease.recoveries + settlement.charge.recovery,
        )
    if settlement.charge.recovery:
        yield cm.HostKilled(lease.kind, lease.id)


def _forget(store: Store, run_id: str) -> Sequence[ev.Event]:
    """End a run that nobody has heard of for a day; runs in the store thread."""
    with store.transaction():
        is_forgotten = store.seize(run_id, lapsed_s=FORGOTTEN_MS / 1000)
        if is_forgotten and not store.leases_of(run_id):
            store.end_run(run_id)
    return ()


def _verdict(
    lease: Lease,
    death: Death,
    registry: Registry | None,
    *,
    beside_suspect: bool,
    now_ms: int,
) -> Settlement:
    """Settle a job that was running when its supervisor or host died."""
    standing = standing_of(lease, beside_suspect=beside_suspect)
    loss = LOSSES[death][standing]
    ending = Ending(
        outcome=Outcome.LOST,
        evidence=Evidence(reason=_REASONS[standing]),
        charge=loss.charge,
        suspect=loss.suspect,
    )
    if registry is None:
        return account(lease, Policy(), ending, now_ms=now_ms)
    settlement = account(lease, registry.policy(lease.kind), ending, now_ms=now_ms)
    return registry.with_followup(lease, settlement)
