"""Settles what a dead run holds: what was lost, what goes back, and what is charged.

What was really running is lost, and `core.rules.suspects` has the table of what that
costs; the rest is handed back uncharged. One transaction settles a whole run and notes
its death, so that a later check finds the same death.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

from jobpool.core.events.event import Event
from jobpool.core.events.jobs import JobSuspected
from jobpool.core.events.supervisor import Alarm, RunReclaimed
from jobpool.core.jobs.job import Evidence, Lease, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import Tracer
from jobpool.core.rules.lifecycle import Ending, account, hand_back
from jobpool.core.rules.policy import Policy, Rerun
from jobpool.core.rules.suspects import LOSSES, Death, Standing, death_of, standing_of
from jobpool.store.protocol import Store
from jobpool.store.records.jobs import Receipt
from jobpool.store.records.runs import KindRecord, Run
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state import notices

_DIED = "its supervisor or host died while it ran"
_HOW = {
    Standing.UNSUSPECTED: "",
    Standing.LOST_BEFORE: ", not for the first time",
    Standing.ON_PROBATION: " on probation, beside others",
    Standing.ALONE: " alone, on probation",
}


class Policies(Protocol):
    """What is known of kinds where a run is taken back."""

    def policy(self, kind: str) -> Policy:
        """Return a kind's policy; of an unknown kind, the defaults."""
        ...

    def with_followup(self, lease: Lease, settlement: Settlement) -> Settlement:
        """Add the hook's job when a settlement ends a job for good."""
        ...


class PublishedPolicies:
    """Kinds' policies as supervisors have published them, without the application.

    Args:
        kinds: as of `Store.kinds`.
    """

    def __init__(self, kinds: Iterable[KindRecord]) -> None:
        self._policies: dict[str, Policy] = {}
        for record in kinds:
            for name in (record.kind, *record.at_most_once):
                self._policies[name] = Policy(
                    max_attempts=record.max_attempts,
                    max_crashes=record.max_crashes,
                    rerun=Rerun.NEVER if record.at_most_once else Rerun.ALWAYS,
                )

    def policy(self, kind: str) -> Policy:
        """See `Policies.policy`."""
        return self._policies.get(kind) or Policy()

    def with_followup(self, lease: Lease, settlement: Settlement) -> Settlement:
        """See `Policies.with_followup`: hooks are the application's."""
        del lease
        return settlement


class Taken(NamedTuple):
    """What became of a run's leases."""

    lost: int
    handed_back: int
    later: int
    """Locked by another session's open transaction: the run still holds them."""
    about_jobs: list[Event | inp.HostKilled]

    def posts(
        self, run: Run, at_ms: int, *, killed: int = 0, presumed: bool = False
    ) -> list[Event | inp.HostKilled]:
        """Return the events and inputs; none while it all waits for the next check."""
        waits = self.later > 0 or presumed
        if waits and self.lost + self.handed_back == 0:
            return []
        event = RunReclaimed(
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
    registry: Policies | None = None,
    now_ms: int,
) -> list[Event]:
    """Settle everything that a dead run holds, and end the run.

    Args:
        store: where its jobs are.
        run: the run; nothing of it may be alive.
        running: tokens of the attempts that were really running; None: all may be.
        registry: the kinds' policies; None: the defaults.
        now_ms: the store's clock.

    Returns:
        The events to report.

    Raises:
        StoreUnavailable: nothing was changed.
    """
    taken = take_back(store, run, running=running, registry=registry, now_ms=now_ms)
    events = [one for one in taken.posts(run, now_ms) if isinstance(one, Event)]
    if taken.later:
        text = (
            f"{taken.later} jobs of run {run.id} are locked by an open transaction and "
            "stay leased; reclaim it again once that has ended"
        )
        events.append(Alarm(at_ms=now_ms, text=text))
    return events


def take_back(
    store: Store,
    run: Run,
    *,
    running: frozenset[int] | None,
    registry: Policies | None,
    now_ms: int,
    with_host: bool = False,
    living: Collection[str] = (),
    tracer: Tracer | None = None,
    details: bool = False,
) -> Taken:
    """Settle what a dead run holds; end the run if that was all."""
    with store.transaction():
        taken = settle_all(
            store,
            run,
            running=running,
            registry=registry,
            now_ms=now_ms,
            with_host=with_host,
            living=living,
            tracer=tracer,
            details=details,
        )
        if taken.later == 0:
            store.end_run(run.id)
    store.wake()
    return taken


def settle_all(
    store: Store,
    run: Run,
    *,
    running: frozenset[int] | None,
    registry: Policies | None,
    now_ms: int,
    with_host: bool = False,
    living: Collection[str] = (),
    died: str = _DIED,
    tracer: Tracer | None = None,
    details: bool = False,
) -> Taken:
    """Settle what a dead run holds, within a transaction.

    Args:
        store: where its jobs are.
        run: the run.
        running: as for `reclaim`.
        registry: as for `reclaim`.
        now_ms: the store's clock.
        with_host: its host was restarted since.
        living: runs that are known to be alive.
        died: what happened, as the reason of each job that was running.
        tracer: names the spans of those; None: nobody hears of spans.
        details: all that is known of them is reported (`Step`).
    """
    leases = store.leases_of(run.id)
    if running is None:
        running = frozenset(one.token for one in leases)
    ran = [one for one in leases if one.token in running]
    seen = store.note_death(run.id, len(ran), with_host=with_host, living=living)
    death, alone = death_of(seen), len(ran) == 1 and not seen.beside
    settlements = [
        _verdict(one, death, registry, alone=alone, now_ms=now_ms, died=died)
        if one.token in running
        else hand_back(one)
        for one in leases
    ]
    receipts = store.settle(settlements)
    about_jobs: list[Event | inp.HostKilled] = []
    lost = handed_back = 0
    for lease, settlement, receipt in zip(leases, settlements, receipts, strict=True):
        if receipt is not Receipt.ACCEPTED:
            continue
        if settlement.outcome is None:
            handed_back += 1
        else:
            lost += 1
            about_jobs += _about(lease, settlement, now_ms, tracer, details=details)
    return Taken(lost, handed_back, receipts.count(Receipt.LATER), about_jobs)


def _about(
    lease: Lease,
    settlement: Settlement,
    now_ms: int,
    tracer: Tracer | None,
    *,
    details: bool,
) -> Iterator[Event | inp.HostKilled]:
    """Yield the events and inputs of a job that was lost."""
    yield from notices.attempt_lost(
        now_ms, lease, settlement, tracer, with_details=details
    )
    if settlement.suspect:
        yield JobSuspected(
            at_ms=now_ms,
            id=lease.id,
            kind=lease.kind,
            recoveries=lease.recoveries + settlement.charge.recovery,
        )
    if settlement.charge.recovery:
        yield inp.HostKilled(lease.kind, lease.id)


def _verdict(
    lease: Lease,
    death: Death,
    registry: Policies | None,
    *,
    alone: bool,
    now_ms: int,
    died: str,
) -> Settlement:
    """Settle a job that was running when its supervisor or host died."""
    standing = standing_of(lease, alone=alone)
    loss = LOSSES[death][standing]
    ending = Ending(
        outcome=Outcome.LOST,
        evidence=Evidence(reason=died + _HOW[standing]),
        charge=loss.charge,
        suspect=loss.suspect,
    )
    if registry is None:
        return account(lease, Policy(), ending, now_ms=now_ms)
    settlement = account(lease, registry.policy(lease.kind), ending, now_ms=now_ms)
    return registry.with_followup(lease, settlement)
