"""A running attempt in its slot: sent, begun, watched, ended.

Theory of operation. A slot's queue holds what its child was sent: the first job runs,
the others were sent ahead and can be recalled until their tickets are taken. `killing`
handles ends that are not the attempt's own, `accounting` what becomes of each end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobpool.core.jobs.job import Start
from jobpool.core.jobs.trace import UNRECORDED
from jobpool.errors import JobpoolBug, UsageError
from jobpool.sandbox.protocol.messages import Answer, Ask, Done, RunJob
from jobpool.sandbox.protocol.verdict import Kill, KillReason, verdict_of_done
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts import blame
from jobpool.supervisor.machine.attempts.accounting import Accounting
from jobpool.supervisor.machine.attempts.deadlines import (
    DOUBT_AFTER_S,
    NOTE_AFTER_S,
    RECALL_AFTER_S,
    SOFT_AGAIN_S,
    dump_at,
    next_moment,
    recall_at,
    write_at,
)
from jobpool.supervisor.machine.attempts.idle import IDLED_MAX_S, IdleChildren
from jobpool.supervisor.machine.attempts.killing import Killing, expect_frame
from jobpool.supervisor.machine.attempts.progress import ProgressReports
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.state import details
from jobpool.supervisor.machine.state.notices import waited_s
from jobpool.supervisor.machine.state.slot import Assigned, Slot, SlotState
from jobpool.supervisor.machine.state.step import Step

ASKS_MAX = 8
"""Most unanswered requests of a child: it makes one at a time, but an exception may
make it leave a few behind."""
NO_READING = (
    "a handler of a pool with sandbox = strict cannot read jobs: what others have "
    "returned is kept from it. Pass it what it needs as arguments, or run it in "
    "another pool"
)


class Running:
    """The actions of the slot table for a busy child, and what leads to them.

    Args:
        step: shared by all parts of the machine.
        progress: collects the progress of running attempts.
        accounting: accounts for their ends.
        killing: ends a child before its attempt does.
        idle: handles children without a job.
        freed: called with a slot that needs another child.
    """

    def __init__(
        self,
        step: Step,
        *,
        progress: ProgressReports,
        accounting: Accounting,
        killing: Killing,
        idle: IdleChildren,
        freed: Callable[[Slot], None],
    ) -> None:
        self._step = step
        self._progress = progress
        self._accounting = accounting
        self._killing = killing
        self._idle = idle
        self._freed = freed
        self._begun: dict[int, Slot] = {}
        """Slots in which an attempt has begun that is not watched yet."""

    def assign(self, slot: Slot, jobs: Sequence[Assigned]) -> None:
        """Send jobs to an idle slot, or ahead to a busy one."""
        had, now_s = len(slot.queue), self._step.now_s
        trace_of, tracer = self._step.trace_of, self._step.tracer
        for seq, job in enumerate(jobs, slot.seq + 1):
            job.seq, job.sent_s = seq, now_s
            job.trace = trace_of(job.lease)
        slot.seq += len(jobs)
        slot.add(jobs)
        if not had:
            self._begin(slot, jobs[0])
            self.attend()  # its limits are set before it can begin
        elif had == 1:  # now there is one to recall
            self._set_deadline(slot)
        untraced = None if tracer is None else UNRECORDED
        self._step.assign(slot, [run_job(job, untraced) for job in jobs])

    def recalled(self, slot: Slot, event: inp.Recalled) -> None:
        """Put recalled jobs back into the backlog: their child can never begin them."""
        slot.recalling = False
        back = [job for job in slot.queue if job.seq in event.seqs]
        sent_s = slot.queue[0].started_s if slot.queue else None
        slot.take_back(back)
        for job in back:
            job.started_s = None
        # Before the child rests, which gives it the first job of the backlog.
        self._killing.put_back(slot, back)
        if slot.state is SlotState.BUSY:
            if slot.queue:
                self._prove(slot, event)
                return
            # It did not begin what it was sent: it was stopped, or a handler that
            # reported its own end goes on in it.
            slot.idled_s += self._step.now_s - (sent_s or self._step.now_s)
            if slot.idled_s >= IDLED_MAX_S:
                self._idle.not_idle(slot, "has not begun what it was sent")
            else:
                self._rest(slot)

    def _prove(self, slot: Slot, event: inp.Recalled) -> None:
        """Check whether a slot's first job has begun, if the recall was for it.

        Its child takes the ticket and then writes the mark. A job found twice without
        either has lost its ticket to an earlier handler: its child is killed.
        """
        head = slot.queue[0]
        if not head.begun and head.seq <= event.last_seq:
            token = head.lease.token
            if blame.may_have_begun(token, event.marked, slot.ended_token):
                head.begun = True
            elif head.doubted:
                robbed = "its ticket was taken, and it was never begun"
                self._killing.kill(slot, Kill(KillReason.BESIDE, robbed), dump=False)
                return
            else:
                head.doubted = True
                slot.recall_s = self._step.now_s + DOUBT_AFTER_S
        self._set_deadline(slot)

    # -- an attempt's life ---------------------------------------------------------

    def _begin(self, slot: Slot, job: Assigned) -> None:
        slot.become(SlotState.BUSY)
        step = self._step
        job.started_s = job.beat_s = step.now_s
        if step.details and job.lease.schedule is not None:
            step.report(details.tick_begun(step.now_ms, job.lease, step.registry))
        # The next job has waited since it was sent, however soon earlier ones ended.
        since_s = slot.queue[1].sent_s if len(slot.queue) > 1 else job.started_s
        slot.recall_s = since_s + RECALL_AFTER_S
        if job.limits.soft_timeout_s is not None:
            job.soft_s = job.started_s + job.limits.soft_timeout_s
        self._begun[slot.number] = slot

    def attend(self) -> None:
        """Watch what has begun; of a child's many in one step, only the last."""
        for slot in self._begun.values():
            if slot.state is SlotState.BUSY:
                self._step.out.append(_watch(slot, slot.queue[0]))
                self._set_deadline(slot)
        self._begun.clear()

    def done(self, slot: Slot, frame: object) -> None:
        """The child reports the end of its attempt."""
        done = expect_frame(frame, Done)
        job = slot.queue[0]
        if done.token != job.lease.token or done.seq != job.seq:
            # An earlier attempt once more, or a later one of this child before its
            # turn: the attempt that should run now is not to blame.
            known = (one.seq for one in slot.queue if one.lease.token == done.token)
            is_ours = done.seq < job.seq or done.seq in known
            reason = KillReason.RECYCLED if is_ours else KillReason.PROTOCOL
            self._killing.garbage(
                slot, "the end of an attempt that it does not run", reason
            )
            return
        if done.added and job.lease.step is None:
            self._killing.garbage(
                slot, "jobs added to the flow of a job in none", KillReason.PROTOCOL
            )
            return
        job.reports = done.reports
        self._accounting.ends.left(slot, job.lease.kind, done.rss_bytes)
        slot.jobs, slot.idled_s, slot.ended_token = slot.jobs + 1, 0.0, done.token
        slot.cpu_s += done.cpu_s
        slot.allowed_bytes = max(slot.allowed_bytes, job.limits.memory_bytes)
        if done.surprise:
            slot.dones[done.seq] = done
            self._killing.kill(
                slot, Kill(KillReason.RECYCLED, done.surprise), dump=False
            )
            return
        slot.ended()
        is_encoded = job.lease.codec is not None
        ending = verdict_of_done(done, slot.name, encoded=is_encoded)
        self._accounting.end(slot, job, ending, done)
        self.go_on(slot, done.rss_bytes)

    def go_on(self, slot: Slot, rss_bytes: int) -> None:
        """Go on after ends; *rss_bytes*: the most that the child had at one of them."""
        slot.worn = slot.worn or self._idle.is_worn(slot, rss_bytes)
        if slot.queue:
            self._begin(slot, slot.queue[0])
        elif slot.worn:
            self._retire(slot)
            self._freed(slot)
        else:
            self._rest(slot)

    def ask(self, slot: Slot, frame: object) -> None:
        """The handler enqueues jobs or a flow, or reads a job or its flow's results."""
        ask = expect_frame(frame, Ask)
        if ask.token != slot.queue[0].lease.token:
            self._killing.garbage(slot, "a request for an attempt that it does not run")
            return
        if slot.asking >= ASKS_MAX:
            self._killing.garbage(slot, "a flood of requests before any was answered")
            return
        slot.queue[0].beat_s = self._step.now_s
        command = _of_ask(slot, ask, self._step.registry)
        slot.asking += isinstance(command, cmd.Enqueue)
        self._step.out.append(command)

    def due(self, slot: Slot, _detail: object) -> None:
        """Do what is due for a running attempt."""
        # Compared exactly as `next_moment` computes them: a duration would round
        # differently, and the slot would be woken for nothing, for ever.
        job, limits, now_s = slot.queue[0], slot.queue[0].limits, self._step.now_s
        began_s = now_s if job.started_s is None else job.started_s
        if began_s + limits.timeout_s <= now_s:
            late = Kill(KillReason.TIMEOUT, limit=limits.timeout_s)
            self._killing.kill(slot, late, dump=not job.dumped)
            return
        silent_s = limits.heartbeat_timeout_s
        if silent_s is not None and job.beat_s + silent_s <= now_s:
            self._killing.kill(slot, Kill(KillReason.STALLED, limit=silent_s))
            return
        if not job.dumped and dump_at(began_s, limits.timeout_s) <= now_s:
            job.dumped = True
            self._step.out.append(cmd.Dump(slot.number))
        if job.soft_s <= now_s:
            job.soft_s = now_s + SOFT_AGAIN_S
            self._step.out.append(cmd.SoftTimeout(slot.number))
        if recall_at(slot) <= now_s:
            slot.recalling = True
            # It may return nothing: the child has begun them all, and only their ends
            # have not been read yet. So never repeat it at once.
            slot.recall_s = now_s + RECALL_AFTER_S
            self._step.out.append(cmd.Recall(slot.number, slot.seq))
        if not job.noted and began_s + NOTE_AFTER_S <= now_s:
            job.noted = True
            self._step.out.append(_note_start(slot, job))
        if write_at(job) <= now_s:
            self._progress.write(job)
        self._set_deadline(slot)

    def impossible(self, slot: Slot, detail: object) -> None:
        """An event that cannot happen in this state."""
        raise JobpoolBug(
            f"slot {slot.name} is {slot.state} and met {type(detail).__name__}; "
            "please report this"
        )

    def _rest(self, slot: Slot) -> None:
        self._step.out.append(cmd.Unwatch(slot.number, slot.allowed_bytes))
        self._idle.rest(slot)

    def _retire(self, slot: Slot) -> None:
        self._step.out.append(cmd.Unwatch(slot.number, slot.allowed_bytes))
        self._idle.retire(slot)

    def _set_deadline(self, slot: Slot) -> None:
        self._step.wake_slot_at(slot, next_moment(slot, self._step.now_s))


def run_job(job: Assigned, untraced: str | None) -> RunJob:
    """Return what the child is to run; *untraced*: instead of a trace context."""
    lease, limits = job.lease, job.limits
    # Positional: Python makes a dict of more than 15 keywords before it calls.
    return RunJob(
        job.seq,
        lease.id,
        lease.token,
        lease.kind,
        lease.attempt,
        lease.payload,
        lease.checkpoint,
        timeout_s=limits.timeout_s,
        soft_timeout_s=limits.soft_timeout_s,
        memory_soft_bytes=limits.memory_soft_bytes
        if limits.memory_soft_raises
        else None,
        memory_bytes=limits.memory_bytes,
        heartbeat_timeout_s=limits.heartbeat_timeout_s,
        max_attempts=lease.max_attempts or job.policy.max_attempts,
        failures=lease.failures,
        priority=lease.priority,
        key=lease.key,
        tenant=lease.tenant,
        codec=lease.codec,
        schedule=lease.schedule,
        snoozes=lease.snoozes,
        is_member=lease.step is not None,
        trace=untraced if job.trace is None else job.trace.text,
        pool=lease.pool,
        waited_s=waited_s(job, job.sent_s),
    )


def _of_ask(slot: Slot, ask: Ask, registry: Registry | None) -> cmd.Enqueue | cmd.Send:
    """Return the command for a handler's request: the store's work, or a refusal."""
    may_read = bool(registry and registry.may_read(slot.pool))
    if ask.reads is None or may_read:
        return cmd.Enqueue(
            slot.number,
            slot.child,
            ask.ask,
            ask.jobs,
            ask.reads,
            may_read=may_read,
            job_id=slot.queue[0].lease.id,
            results=ask.results,
            flow=ask.flow,
        )
    refusal = Answer(
        ask.ask,
        None,
        error_class=UsageError.__name__,
        error=NO_READING,
    )
    return cmd.Send(slot.number, refusal)


def _note_start(slot: Slot, job: Assigned) -> cmd.NoteStart:
    """Return the note for the store that an attempt has begun and goes on."""
    lease, began_s = job.lease, (job.started_s or 0.0) + job.slept_s
    return cmd.NoteStart(Start(lease.id, lease.token, slot.name, began_s))


def _watch(slot: Slot, job: Assigned) -> cmd.Watch:
    """Return the limits that the slot's child is held to while the attempt runs."""
    limits = job.limits
    return cmd.Watch(
        slot.number, job.seq, limits.memory_bytes, limits.memory_soft_bytes
    )
