"""The dispatcher: what the pools lease, and which slot gets each job.

A pool asks for no more than it can use: one job for each slot that is free, or will be
within a tenth of a second, and, while its jobs end within 2 ms, enough to keep its
children busy. A job that does not begin soon, because every slot is busy for longer or
none takes it within a second, is handed back, so that another supervisor may run it,
and with it all that waits behind it: jobs begin in the order of their leases.
So is a job that expires meanwhile: the store cancels it. What was asked for before a
fence (`fencing`) is handed back wherever it turns up. So is a job that a rate counts as
begun by a moment that has passed: in any time, no more begin than the rate allows.

The gates decide whether a job may begin (`gate`). They are asked in one pass over a
pool's backlog, in one order; what they refuse for good goes back at the end of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.core.jobs.job import Evidence, Lease
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.lifecycle import Ending, account
from jobpool.core.rules.quotas.gcra import SLOW_MAX_S
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.admission.probation import Probation
from jobpool.supervisor.machine.attempts.idle import IdleChildren
from jobpool.supervisor.machine.attempts.residual_memory import first_with_room
from jobpool.supervisor.machine.attempts.running import Running
from jobpool.supervisor.machine.dispatch.backlog import (
    HOLD_S,
    behind_the_first,
    distrusted,
    expired,
    held_until_s,
    late,
    whole,
)
from jobpool.supervisor.machine.dispatch.lateness import Lateness
from jobpool.supervisor.machine.dispatch.prefetch import Prefetch
from jobpool.supervisor.machine.state.durations import BRISK_S
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

SLOW_TIMES = 2.0
"""An answer may take so much longer than the last one that came too late."""
SENDABLE_MAX_BYTES = 12 * 2**20
"""Well below the longest frame that can be sent."""
_ON_THE_WAY = (SlotState.RETIRING, SlotState.FORKING, SlotState.STARTING)


class Dispatcher:
    """Leases in, jobs out to the slots.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        running: takes the jobs.
        idle: replaces a child in which a job has no room.
        gates: decide which may begin, asked in this order; probation is one of them.
        probation: says which suspects the store may grant.
    """

    def __init__(
        self,
        step: Step,
        pools: dict[str, Pool],
        *,
        running: Running,
        idle: IdleChildren,
        gates: Sequence[Gate],
        probation: Probation,
    ) -> None:
        self._step = step
        self._pools = pools
        self._running = running
        self._idle = idle
        self._gates = gates
        self._probation = probation
        self._lateness = Lateness(step)
        self._prefetch = Prefetch(step, gates, running.assign)
        self.waiting = False
        """A request is with the store."""
        self._is_open = False
        self._asked_epoch = 0
        """The epoch of the last request."""
        self._asked_s = 0.0
        """Its time, by the clock that goes on while the host sleeps."""
        self._slow_s = 0.0
        """So late an answer may come; 0: soon enough for every rate so far."""
        self._dry: set[str] = set()
        """Idle pools whose last request brought nothing, with no hint since it left."""
        self._hinted = False
        """There was one since the request left that is with the store."""
        self._holds_on = False
        """A pool's jobs go back once the store has answered."""

    @property
    def nothing_due(self) -> bool:
        """Whether no pool has, or can get, anything to do."""
        return len(self._dry) == len(self._pools)

    def open(self) -> None:
        """The run is in the store: from now on jobs may be leased."""
        self._is_open = True

    def hint(self) -> None:
        """There may be due jobs."""
        self._expect_more()
        for pool in self._pools.values():
            pool.polling.hint()

    def ask(self) -> None:
        """Ask for as many jobs as the pools can use, one request at a time."""
        step = self._step
        if step.recheck:
            step.recheck = False
            for pool in self._pools.values():
                self.dispatch(pool)
            self.hint()
        if step.others_begin:
            step.others_begin = False
            self._expect_more()
            for pool in self._pools.values():
                pool.polling.expect(step.now_s)
        if self._must_not_ask():
            return
        wanted = {
            pool.name: room
            for pool in self._pools.values()
            if pool.polling.next_s <= step.now_s and (room := self._room(pool))
        }
        if not wanted:
            return
        ahead = {}
        for name, room in wanted.items():
            pool = self._pools[name]
            pool.asked = room
            if room > pool.free:
                ahead[name] = room - pool.free
        self.waiting, self._hinted = True, False
        self._asked_epoch, self._asked_s = step.epoch, step.now_s + step.slept_s
        probation = self._probation
        step.out.append(
            cmd.Lease(
                wanted,
                suspects=probation.takes_suspects,
                alone=probation.is_empty,
                held=frozenset[str]().union(
                    *(gate.held() for gate in self._gates),
                    *(one.late_kinds(self._asked_s) for one in self._pools.values()),
                ),
                ahead=ahead,
                slow_s=self._slow_s,
            )
        )

    def _expect_more(self) -> None:
        self._dry.clear()
        self._hinted = True

    def _must_not_ask(self) -> bool:
        step = self._step
        is_shut = step.ending or step.fenced or not self._is_open
        return is_shut or self.waiting

    def _room(self, pool: Pool) -> int:
        """Return how many more leases a pool can use; 0 while it has to wait."""
        if pool.unwritten.is_much or any(gate.shuts(pool) for gate in self._gates):
            return 0
        return pool.capacity(self._step.now_s)

    def next_s(self, at_latest_s: float) -> float:
        """Return when a pool should ask, or *at_latest_s* if that is sooner."""
        soonest_s = at_latest_s
        if not self._must_not_ask():
            for pool in self._pools.values():
                if pool.polling.next_s < soonest_s and self._room(pool):
                    soonest_s = pool.polling.next_s
        return soonest_s

    def granted(self, event: inp.Granted) -> None:
        """The store answered."""
        if event.batch.lapsed or event.batch.outdated:
            self.failed()
            return
        self._answered()
        self._learn_slowness(event.batch.leases)
        if event.batch.suspects_wait:
            self._probation.suspects_wait()
        has_more = event.batch.suspects_wait or event.batch.next_due_in_s == 0.0
        # The store may have answered before what there is now.
        has_more |= self._hinted
        got = dict.fromkeys(event.wanted, 0)
        for lease in event.batch.leases:
            got[lease.pool] += 1
            if not lease.suspect:
                self._accept(lease)
        if event.batch.leases:
            self._step.wake_at(self._step.now_s + BRISK_S)
        for name, asked in event.wanted.items():
            pool = self._pools[name]
            pool.asked = 0
            pool.polling.answered(
                now_s=self._step.now_s,
                more_likely=got[name] >= asked or self._hinted,
                next_due_in_s=event.batch.next_due_in_s,
            )
            left_out = pool.late_kinds(self._asked_s)  # for a moment
            if has_more or got[name] or pool.backlog or pool.busy or left_out:
                self._dry.discard(name)
            else:
                self._dry.add(name)
            self.dispatch(pool)
        # A suspect comes last: nothing begins after it, and the others need not wait.
        for lease in event.batch.leases:
            if lease.suspect:
                self._accept(lease)
                self.dispatch(self._pools[lease.pool])

    def _answered(self) -> None:
        self.waiting = False
        if self._holds_on:
            self._holds_on = False
            self._step.wake_at(self._step.now_s)

    def _learn_slowness(self, leases: Sequence[Lease]) -> None:
        """Ask for more time if a rate's job could not begin when its answer came.

        Else, where answers take longer than a rate allows, none ever began.
        """
        took_s = self._step.now_s + self._step.slept_s - self._asked_s
        within_s = min(
            (one.begin_within_s for one in leases if one.begin_within_s is not None),
            default=NEVER_S,
        )
        if took_s >= within_s:
            self._slow_s = min(SLOW_MAX_S, SLOW_TIMES * took_s)
        elif leases and took_s * SLOW_TIMES < self._slow_s / 2:
            self._slow_s /= 2

    def failed(self) -> None:
        """The store could not answer."""
        self._answered()
        for pool in self._pools.values():
            if pool.asked:
                pool.asked = 0
                pool.polling.failed(now_s=self._step.now_s)

    def dispatch(self, pool: Pool) -> None:
        """Assign waiting jobs to idle slots, then send jobs ahead to busy ones.

        One pass over the pool's backlog: each gate that is not open is asked once about
        a job, and everything that may not begin here is handed back at the end.
        """
        back = self._sorted_out(pool)
        if pool.backlog:
            self._begin(pool, back)
        else:
            for gate in self._gates:
                gate.emptied(pool)
        self._step.hand_back(back)

    def _begin(self, pool: Pool, back: list[Lease]) -> None:
        """Assign jobs to slots; add those that have expired to *back*."""
        if pool.unwritten.is_much and not pool.backlog[0].lease.suspect:
            return  # but a suspect holds up all pools until it has had its turn
        room = max(pool.size - pool.busy, 0)
        idle = [slot for slot in pool.slots if slot.state is SlotState.IDLE]
        are_all_used = len(idle) <= room
        while room > 0 and idle:
            now_s = self._step.now_s + self._step.slept_s
            back += expired(pool, self._lateness, now_s)
            if not pool.backlog or self._has_to_wait(pool.backlog[0]):
                return
            slot = first_with_room(idle, pool.backlog[0].limits)
            if slot is None:
                self._make_room(pool, idle[0])
                return
            idle.remove(slot)
            room -= 1
            job = pool.backlog.popleft()
            self._lateness.begun(job.lease.kind)
            self._running.assign(slot, [job])
            for gate in self._gates:
                gate.begun()
        if are_all_used:
            self._prefetch.send(pool)

    def _has_to_wait(self, job: Assigned) -> bool:
        """Ask the gates that make the first job wait."""
        return any(
            gate.admit(job) is not None for gate in self._gates if not gate.sorts_out
        )

    def _sorted_out(self, pool: Pool) -> list[Lease]:
        """Take out of the backlog what may not begin here, at any place.

        Gates that are open are not asked, so this is normally free.
        """
        back = distrusted(pool, self._step.epoch)
        asked = [gate for gate in self._gates if gate.sorts_out and not gate.is_open]
        if not asked:
            return back
        refused = [
            job
            for job in pool.backlog
            if any(gate.admit(job) is not None for gate in asked)
        ]
        for job in refused:
            pool.backlog.remove(job)
        return back + [job.lease for job in refused]

    def try_again(self, but: str = "") -> None:
        """Dispatch the pools whose first job a gate may admit by now.

        What waits for the last gate has passed the others, and goes first.
        """
        names = [n for gate in reversed(self._gates) for n in gate.pools_to_try()]
        for name in names:
            if name != but:
                self.dispatch(self._pools[name])

    def keep_time(self) -> None:
        """Let the gates do what is due, and try the pools that they name."""
        for gate in self._gates:
            gate.keep_time()
        self.try_again()

    def written(self, tokens: Sequence[int]) -> None:
        """The store has written large results: their pools may go on."""
        for pool in self._pools.values():
            if pool.unwritten.written(tokens):
                self.dispatch(pool)

    def top_up(self, slot: Slot) -> None:
        """Send more ahead to a busy slot before it runs out of jobs."""
        pool = self._pools[slot.pool]
        if pool.backlog and self._prefetch.is_low(pool, slot):
            self.dispatch(pool)

    def _make_room(self, pool: Pool, slot: Slot) -> None:
        """Replace a child, one at a time, for a job that fits into none."""
        if all(one.state not in _ON_THE_WAY for one in pool.slots):
            self._idle.retire(slot)

    def held_too_long(self, pool: Pool) -> None:
        """Hand back jobs that no slot took in time.

        Those behind the first go back with it, and none before what is on the way is
        here: else later ones would begin before them.
        """
        step = self._step
        back = late(pool, self._lateness, step.now_s + step.slept_s)
        if not pool.backlog:
            pass
        elif (until_s := held_until_s(pool)) > step.now_s:
            step.wake_at(until_s)
        elif any(gate.keeps(pool.backlog[0]) for gate in self._gates):
            back += behind_the_first(pool, step.now_s)
            step.wake_at(step.now_s + HOLD_S)
        elif pool.asked:
            self._holds_on = True  # what comes belongs behind it
        else:
            if not pool.unwritten.is_much:
                # It is not as fast as its jobs were.
                pool.durations.took([HOLD_S] * len(pool.backlog))
            back += whole(pool)
        step.wake_at(pool.begin_by_s - step.slept_s)
        step.hand_back(back)

    def give_up(self, pool: Pool) -> None:
        """Hand back a pool's whole backlog."""
        self._step.hand_back(whole(pool))

    def withdraw(self, tokens: frozenset[int]) -> None:
        """Hand back the waiting jobs with these tokens."""
        for pool in self._pools.values():
            held = [job for job in pool.backlog if job.lease.token in tokens]
            for job in held:
                pool.backlog.remove(job)
            self._step.hand_back(job.lease for job in held)

    def _accept(self, lease: Lease) -> None:
        """Add a granted job to its pool's backlog; hand it back if it is unwanted."""
        step = self._step
        unwanted = step.ending or step.fenced or self._asked_epoch != step.epoch
        if unwanted or step.registry is None or not step.registry.knows(lease.kind):
            step.hand_back([lease])
            return
        size = len(lease.payload) + len(lease.checkpoint or b"")
        if size > SENDABLE_MAX_BYTES:
            reason = f"its arguments and checkpoint are {size} bytes, too long to send"
            ending = Ending(
                outcome=Outcome.FAILED, evidence=Evidence(reason=reason), give_up=True
            )
            policy = step.registry.policy(lease.kind)
            step.settle(
                lease, account(lease, policy, ending, now_ms=lease.leased_at_ms)
            )
            return
        job = Assigned(
            lease=lease,
            expires_s=NEVER_S
            if lease.expires_at_ms is None
            else self._expires_s(lease, lease.expires_at_ms),
            policy=step.registry.policy(lease.kind),
            limits=step.registry.limits(lease),
            leased_s=step.now_s,
            slept_s=step.slept_s,
            epoch=step.epoch,
            begin_by_s=NEVER_S
            if lease.begin_within_s is None
            else self._asked_s + lease.begin_within_s,
        )
        pool = self._pools[lease.pool]
        pool.weigh(size)
        if lease.laned:
            pool.polling.crowded(step.now_s)
        if job.begin_by_s < pool.begin_by_s:
            pool.begin_by_s = job.begin_by_s
            step.wake_at(job.begin_by_s - step.slept_s)
        if lease.suspect:
            pool.backlog.appendleft(job)
            self._probation.take(job)
        else:
            pool.backlog.append(job)

    def _expires_s(self, lease: Lease, expires_at_ms: int) -> float:
        """Return when a job that never began is canceled, host sleep included.

        Counted from the request: the grant came later, its answer later still.
        """
        if lease.attempt > 1:
            return NEVER_S
        left_s = (expires_at_ms - lease.leased_at_ms) / 1000
        return self._asked_s + left_s
