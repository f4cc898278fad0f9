"""A running attempt in its slot: begun, heard of, ended, killed, judged.

Theory of operation. A slot's queue holds what its child was sent. Only the first
can be running: a child begins a job by taking its ticket, in order, and reports
its end before it takes the next. So when a child dies, the first of its queue
pays, unless its ticket was never taken; the others go back uncounted. A handler can
take tickets as well: whoever else's is gone had begun only if it has left its mark,
and is interrupted then, never charged (`deaths.never_began`); and so is the first, if
it has left none and was not the first in its child (`deaths.of_the_blamed`). A kill is
decided once (`Slot.killed`) and judged only when the whole tree is gone, so that
no attempt is settled while a process of it may live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from jobpool.core.job import JobState
from jobpool.core.lifecycle import Ending, account
from jobpool.core.outcome import Outcome
from jobpool.errors import JobpoolBug
from jobpool.sandbox.frames import Ask, Done
from jobpool.sandbox.verdict import Kill, KillReason, verdict_of_done
from jobpool.supervisor import deaths, notices, orders, spans
from jobpool.supervisor import messages as m
from jobpool.supervisor import watchmessages as wm
from jobpool.supervisor.beats import Beats
from jobpool.supervisor.claims import Claims
from jobpool.supervisor.desk import Desk
from jobpool.supervisor.leftovers import kill_for_memory
from jobpool.supervisor.moments import (
    DOUBT_AFTER_S,
    DUMP_S,
    MEMORY_DUMP_S,
    NOTE_AFTER_S,
    RECALL_AFTER_S,
    SOFT_AGAIN_S,
    dump_at,
    next_moment,
    recall_at,
    write_at,
)
from jobpool.supervisor.pool import Pool
from jobpool.supervisor.resting import IDLED_MAX_S, STUCK_AGAIN_S, STUCK_S, Resting
from jobpool.supervisor.slot import Assigned, Slot, SlotState, empty
from jobpool.supervisor.softmemory import SoftMemory

T = TypeVar("T")
ASKS_MAX = 8
"""A child asks one thing at a time; an exception may make it leave a few behind."""


class Attempts:
    """The actions of the slot table once there is a ready child.

    Args:
        desk: the core's.
        pools: by name.
        resting: has the children without a job.
        freed: called with a slot that needs another child.
    """

    def __init__(
        self,
        desk: Desk,
        pools: dict[str, Pool],
        *,
        resting: Resting,
        freed: Callable[[Slot], None],
    ) -> None:
        self._desk = desk
        self._pools = pools
        self.resting = resting
        self._freed = freed
        self._begun: dict[int, Slot] = {}
        """Slots in which an attempt has begun that is not attended yet."""
        self.claims = Claims(desk)
        self.beats = Beats(desk)
        self.beat, self.seen = self.beats.beat, self.beats.seen
        self.soft_memory = SoftMemory(desk, self._kill).passed

    def assign(self, slot: Slot, jobs: Sequence[Assigned]) -> None:
        """Send jobs to an idle slot, or ahead to a busy one."""
        had, now_s = len(slot.queue), self._desk.now_s
        for seq, job in enumerate(jobs, slot.seq + 1):
            job.seq, job.sent_s = seq, now_s
        slot.seq += len(jobs)
        slot.queue.extend(jobs)
        if not had:
            self._begin(slot, jobs[0])
            self.attend()  # its bounds are set before it can begin
        elif had == 1:  # now there is one to be recalled
            self._set_deadline(slot)
        self._desk.assign(slot, map(orders.run_job, jobs))

    def recalled(self, slot: Slot, event: m.Recalled) -> list[Assigned]:
        """Take jobs out of a slot's queue that its child can never begin."""
        slot.recalling = False
        back = [job for job in slot.queue if job.seq in event.seqs]
        sent_s = slot.queue[0].started_s if slot.queue else None
        for job in back:
            slot.queue.remove(job)
            job.started_s = None
        if slot.state is SlotState.BUSY:
            if slot.queue:
                self._prove(slot, event)
                return back
            # It did not begin what it was sent: somebody has stopped it, or a handler
            # that reported its own end goes on in it.
            slot.idled_s += self._desk.now_s - (sent_s or self._desk.now_s)
            if slot.idled_s >= IDLED_MAX_S:
                self.resting.restless(slot, "has not begun what it was sent")
            else:
                self._rest(slot)
        return back

    def _prove(self, slot: Slot, event: m.Recalled) -> None:
        """See whether the first of a slot has begun, if the recall was for it.

        Its child takes the ticket and then writes the mark. Who is seen twice without
        either was robbed of its ticket by a handler before it: its child is ended.
        """
        head = slot.queue[0]
        if not head.begun and head.seq <= event.last_seq:
            token = head.lease.token
            if deaths.may_have_begun(token, event.marked, slot.ended_token):
                head.begun = True
            elif head.doubted:
                robbed = "its ticket was taken, and it was never begun"
                self._kill(slot, Kill(KillReason.BESIDE, robbed), dump=False)
                return
            else:
                head.doubted = True
                slot.recall_s = self._desk.now_s + DOUBT_AFTER_S
        self._set_deadline(slot)

    # -- an attempt's life ---------------------------------------------------------

    def _begin(self, slot: Slot, job: Assigned) -> None:
        slot.state = SlotState.BUSY
        job.started_s = job.beat_s = self._desk.now_s
        # Who waits has waited since it was sent, however soon each before it ended.
        since_s = slot.queue[1].sent_s if len(slot.queue) > 1 else job.started_s
        slot.recall_s = since_s + RECALL_AFTER_S
        if job.limits.soft_timeout_s is not None:
            job.soft_s = job.started_s + job.limits.soft_timeout_s
        self._begun[slot.number] = slot

    def attend(self) -> None:
        """Watch over what has begun; of a child's many in one step, over the last."""
        for slot in self._begun.values():
            if slot.state is SlotState.BUSY:
                self._desk.out.append(orders.watch(slot, slot.queue[0]))
                self._set_deadline(slot)
        self._begun.clear()

    def done(self, slot: Slot, frame: object) -> None:
        """The child reports the end of its attempt."""
        done = _frame(frame, Done)
        job = slot.queue[0]
        if done.token != job.lease.token or done.seq != job.seq:
            # Of an earlier attempt once more, or of a later one of this child without
            # those before it: whoever is said to run now is not to blame.
            known = (one.seq for one in slot.queue if one.lease.token == done.token)
            is_ours = done.seq < job.seq or done.seq in known
            reason = KillReason.RECYCLED if is_ours else KillReason.PROTOCOL
            self.garbage(slot, "the end of an attempt that it does not run", reason)
            return
        slot.jobs, slot.idled_s, slot.ended_token = slot.jobs + 1, 0.0, done.token
        slot.cpu_s += done.cpu_s
        slot.left_bytes = done.rss_bytes - slot.base_rss_bytes
        slot.allowed_bytes = max(slot.allowed_bytes, job.limits.memory_bytes)
        if done.surprise:
            slot.dones[done.seq] = done
            self._kill(slot, Kill(KillReason.RECYCLED, done.surprise), dump=False)
            return
        slot.queue.popleft()
        self._end(slot, job, verdict_of_done(done, slot.name), done)
        self.go_on(slot, done.rss_bytes)

    def go_on(self, slot: Slot, rss_bytes: int) -> None:
        """Go on after the ends of attempts; at one of them the child had so much."""
        slot.worn = slot.worn or self.resting.is_worn(slot, rss_bytes)
        if slot.queue:
            self._begin(slot, slot.queue[0])
        elif slot.worn:
            self._retire(slot)
            self._freed(slot)
        else:
            self._rest(slot)

    def late_done(self, slot: Slot, frame: object) -> None:
        """A last word after the kill was decided still counts if it is valid."""
        done = _frame(frame, Done)
        runs = next((job for job in slot.queue if job.seq not in slot.dones), None)
        if runs and (done.seq, done.token) == (runs.seq, runs.lease.token):
            slot.dones[done.seq] = done

    def ask(self, slot: Slot, frame: object) -> None:
        """The handler enqueues jobs, or reads one."""
        ask = _frame(frame, Ask)
        if ask.token != slot.queue[0].lease.token:
            self.garbage(slot, "a request for an attempt that it does not run")
            return
        if slot.asking >= ASKS_MAX:
            self.garbage(slot, "a flood of requests before any was answered")
            return
        slot.queue[0].beat_s = self._desk.now_s
        command = orders.of_ask(slot, ask, self._desk.registry)
        slot.asking += isinstance(command, m.Enqueue)
        self._desk.out.append(command)

    def due(self, slot: Slot, _detail: object) -> None:
        """Do whatever of a running attempt's moments has come."""
        # Moments are compared as `next_moment` computes them: a duration would
        # round differently, and the slot would be woken for nothing, for ever.
        job, limits, now_s = slot.queue[0], slot.queue[0].limits, self._desk.now_s
        began_s = now_s if job.started_s is None else job.started_s
        if began_s + limits.timeout_s <= now_s:
            late = Kill(KillReason.TIMEOUT, limit=limits.timeout_s)
            self._kill(slot, late, dump=not job.dumped)
            return
        silent_s = limits.heartbeat_timeout_s
        if silent_s is not None and job.beat_s + silent_s <= now_s:
            self._kill(slot, Kill(KillReason.STALLED, limit=silent_s))
            return
        if not job.dumped and dump_at(began_s, limits.timeout_s) <= now_s:
            job.dumped = True
            self._desk.out.append(m.Dump(slot.number))
        if job.soft_s <= now_s:
            job.soft_s = now_s + SOFT_AGAIN_S
            self._desk.out.append(m.SoftTimeout(slot.number))
        if recall_at(slot) <= now_s:
            slot.recalling = True
            # It may come back empty: the child has begun them all, and only their
            # ends have not been read yet. So never again at once.
            slot.recall_s = now_s + RECALL_AFTER_S
            self._desk.out.append(m.Recall(slot.number, slot.seq))
        if not job.noted and began_s + NOTE_AFTER_S <= now_s:
            job.noted = True
            self._desk.out.append(orders.note_start(slot, job))
        if write_at(job) <= now_s:
            self.beats.write(job)
        self._set_deadline(slot)

    def _end(
        self, slot: Slot, job: Assigned, ending: Ending, done: Done | None
    ) -> None:
        """Account for an attempt and give its settlement out."""
        desk, lease = self._desk, job.lease
        self.beats.write_last(job, succeeded=ending.outcome is Outcome.SUCCEEDED)
        held_s = desk.now_s - job.leased_s + desk.slept_s - job.slept_s
        now_ms = lease.leased_at_ms + round(held_s * 1000)
        accounted = account(lease, job.policy, ending, now_ms=now_ms)
        settlement = spans.timed(accounted, job, done, desk)
        waits = claimed = done is not None and done.completed
        if claimed:
            settlement = self.claims.hold(job, slot.name, settlement)
        elif settlement.unknown_for_ms is not None:
            waits = True
            self.claims.keep(job, slot.name, settlement)
        pool = self._pools[slot.pool]
        pool.took(lease.kind, [ending.evidence.duration_s or 0.0])
        pool.owe(lease.kind, settlement)
        desk.settle(lease, settlement)
        if settlement.state is JobState.PENDING:
            pool.pace.expect(desk.now_s + settlement.delay_ms / 1000)
        if output := ending.evidence.output:
            desk.say(notices.job_output(desk.now_ms, lease, slot.name, output))
        if not waits:
            desk.say(notices.attempt_ended(desk.now_ms, job, slot.name, settlement))

    # -- ends of a child -----------------------------------------------------------

    def over_memory(self, slot: Slot, detail: object) -> None:
        """The tree is over its memory limit."""
        over = _frame(detail, wm.OverMemory)
        if over.seq == slot.queue[0].seq:  # else that had not begun
            kill = kill_for_memory(slot, over.rss_bytes)
            self._kill(slot, kill, dump_s=MEMORY_DUMP_S)

    def over_processes(self, slot: Slot, detail: object) -> None:
        """The tree has too many processes; each that is looked at costs time."""
        over = _frame(detail, wm.OverProcesses)
        kill = Kill(KillReason.PROCESSES, limit=over.most, seen=over.count)
        if over.seq == slot.queue[0].seq:
            self._kill(slot, kill, dump=False)

    def cancel(self, slot: Slot, _detail: object) -> None:
        """Somebody wants the running job canceled."""
        self._kill(slot, Kill(KillReason.CANCELED))

    def interrupt(self, slot: Slot, reason: object) -> None:
        """We end now, or the drain window is over."""
        self._kill(slot, Kill(KillReason.STOPPED, str(reason or "")))

    def garbage(
        self, slot: Slot, said: object, why: KillReason = KillReason.PROTOCOL
    ) -> None:
        """The child sent what no child of ours sends: it cannot be trusted any more."""
        self._desk.say(notices.protocol_broken(self._desk.now_ms, slot.name, str(said)))
        self._kill(slot, Kill(why, str(said)), dump=False)

    def _kill(
        self, slot: Slot, kill: Kill, *, dump: bool = True, dump_s: float = DUMP_S
    ) -> None:
        slot.killed = kill
        slot.killed_seq = slot.queue[0].seq if slot.queue else 0
        if len(slot.queue) > 1:
            self._desk.out.append(m.Recall(slot.number, slot.seq))
        if not dump:
            self.resting.kill_now(slot)
            return
        slot.state = SlotState.DUMPING
        self._desk.wake_slot_at(slot, self._desk.now_s + dump_s)
        self._desk.out.append(m.Dump(slot.number))

    def stuck(self, slot: Slot, _detail: object) -> None:
        """The kernel does not let it die (disk sleep): its lease stays ours."""
        desk = self._desk
        desk.say(notices.child_stuck(desk.now_ms, slot.name, STUCK_S))
        desk.out.append(m.Kill(slot.number))
        desk.wake_slot_at(slot, desk.now_s + STUCK_AGAIN_S)

    def died(self, slot: Slot, exited: object) -> None:
        """A child that had jobs is gone, and its tree with it."""
        death = _frame(exited, m.ChildExited)
        jobs, dones = list(slot.queue), dict(slot.dones)
        killed, killed_seq, now_s = slot.killed, slot.killed_seq, self._desk.now_s
        if killed is None and death.fenced and jobs:
            killed = Kill(KillReason.STOPPED, "its lease had run out")
            killed_seq = jobs[0].seq
        cpu_before_s, before = slot.cpu_s, slot.ended_token
        self._desk.out.append(wm.Unwatch(slot.number, slot.allowed_bytes))
        empty(slot)
        back = deaths.never_began(death, jobs, frozenset(dones))
        first = next((job.seq for job in jobs if job.seq not in dones), 0)
        blamed = first if killed is None else killed_seq
        for job in jobs:
            if job.seq in back:
                continue
            kill, done = killed, dones.get(job.seq)
            if job.seq != blamed and (killed is not None or done is None):
                # It had begun before its ticket could be recalled: not its fault.
                kill = Kill(KillReason.BESIDE)
            elif done is None:
                token = job.lease.token
                kill = deaths.of_the_blamed(killed, token, death.marked, before)
            ending = deaths.judge(
                death,
                done,
                kill,
                slot=slot.name,
                ran_s=0.0 if job.started_s is None else now_s - job.started_s,
                cpu_before_s=cpu_before_s,
                stopping=self._desk.ending,
            )
            self._end(slot, job, ending, done)
        self._return(slot, [job for job in jobs if job.seq in back])
        self._freed(slot)

    def _return(self, slot: Slot, jobs: list[Assigned]) -> None:
        """Put jobs that never began back in line, in their order."""
        wanted = self._desk.wanted(jobs)
        self._pools[slot.pool].backlog.extendleft(reversed(wanted))
        self._desk.wake_at(self._desk.now_s)

    def impossible(self, slot: Slot, detail: object) -> None:
        """The table says that this cannot happen."""
        raise JobpoolBug(
            f"slot {slot.name} is {slot.state} and met {type(detail).__name__}; "
            "please report this"
        )

    def _rest(self, slot: Slot) -> None:
        self._desk.out.append(wm.Unwatch(slot.number, slot.allowed_bytes))
        self.resting.rest(slot)

    def _retire(self, slot: Slot) -> None:
        self._desk.out.append(wm.Unwatch(slot.number, slot.allowed_bytes))
        self.resting.retire(slot)

    def _set_deadline(self, slot: Slot) -> None:
        self._desk.wake_slot_at(slot, next_moment(slot, self._desk.now_s))


def _frame(value: object, expected: type[T]) -> T:
    if not isinstance(value, expected):
        raise JobpoolBug(
            f"expected {expected.__name__}, got {type(value).__name__}; please report"
        )
    return value
