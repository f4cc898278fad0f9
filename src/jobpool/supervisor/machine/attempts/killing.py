"""The end of a child that has jobs: killed or dead, and which job is charged.

Theory of operation. A slot's queue holds what its child was sent. Only the first job
can be running: a child begins a job by taking its ticket, in order, and reports its end
before it takes the next. So when a child dies, the first job of its queue is charged,
unless its ticket was never taken; the others go back uncharged. A handler can take
tickets as well. So any other job whose ticket is gone had begun only if it has left its
mark; it is interrupted then, never charged (`blame.never_began`). The same holds for
the first job, if it has left no mark and is not its child's first
(`blame.of_the_blamed`).
A kill is decided once (`Slot.killed`) and judged only when the whole tree is gone, so
that no attempt is settled while a process of it may live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from jobpool.core.events.jobs import MemorySoftPassed
from jobpool.errors import JobpoolBug
from jobpool.sandbox.protocol.messages import Done
from jobpool.sandbox.protocol.verdict import Kill, KillReason
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts import blame
from jobpool.supervisor.machine.attempts.accounting import Accounting
from jobpool.supervisor.machine.attempts.deadlines import DUMP_S, MEMORY_DUMP_S
from jobpool.supervisor.machine.attempts.idle import (
    STUCK_AGAIN_S,
    STUCK_S,
    IdleChildren,
)
from jobpool.supervisor.machine.attempts.residual_memory import (
    kill_for_memory,
    kill_for_soft_memory,
)
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Assigned, Slot, SlotState, empty
from jobpool.supervisor.machine.state.step import Step

T = TypeVar("T")


class Killing:
    """The actions of the slot table that end a child with jobs.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        accounting: accounts for the attempts.
        idle: kills trees.
        freed: called with a slot that needs another child.
    """

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        *,
        accounting: Accounting,
        idle: IdleChildren,
        freed: Callable[[Slot], None],
    ) -> None:
        self._step = step
        self._pools = pools
        self._accounting = accounting
        self._idle = idle
        self._freed = freed

    # -- why -----------------------------------------------------------------------

    def over_memory(self, slot: Slot, detail: object) -> None:
        """The tree is over its memory limit."""
        over = expect_frame(detail, inp.OverMemory)
        if over.seq == slot.queue[0].seq:  # else it was an earlier attempt
            kill = kill_for_memory(slot, over.rss_bytes)
            self.kill(slot, kill, dump_s=MEMORY_DUMP_S)

    def soft_memory(self, slot: Slot, detail: object) -> None:
        """The tree is over its soft limit: report it once, signal it each time."""
        over, job = expect_frame(detail, inp.OverMemory), slot.queue[0]
        if over.seq != job.seq:
            return  # sampled before the present attempt began
        if kill := kill_for_soft_memory(slot):
            self.kill(slot, kill)
            return
        raises = job.limits.memory_soft_raises
        if not job.soft_memory_reported:
            job.soft_memory_reported = True
            self._step.report(
                MemorySoftPassed(
                    at_ms=self._step.now_ms,
                    id=job.lease.id,
                    kind=job.lease.kind,
                    slot=slot.name,
                    attempt=job.lease.attempt,
                    rss_bytes=over.rss_bytes,
                    soft_bytes=job.limits.memory_soft_bytes or 0,
                    memory_bytes=job.limits.memory_bytes,
                    raised=raises,
                    trace_id=job.trace_id,
                )
            )
        if raises:
            self._step.out.append(cmd.SoftMemory(slot.number))

    def over_processes(self, slot: Slot, detail: object) -> None:
        """The tree has too many processes: kill it without a dump, which costs time."""
        over = expect_frame(detail, inp.OverProcesses)
        kill = Kill(KillReason.PROCESSES, limit=over.most, seen=over.count)
        if over.seq == slot.queue[0].seq:
            self.kill(slot, kill, dump=False)

    def cancel(self, slot: Slot, _detail: object) -> None:
        """The running job is to be canceled."""
        self.kill(slot, Kill(KillReason.CANCELED))

    def interrupt(self, slot: Slot, reason: object) -> None:
        """The supervisor stops, or the drain window is over."""
        self.kill(slot, Kill(KillReason.STOPPED, str(reason or "")))

    def interrupt_at_once(self, slot: Slot, kill: Kill) -> None:
        """Its memory is needed: kill it without a dump, which takes time."""
        self.kill(slot, kill, dump=False)

    def garbage(
        self, slot: Slot, sent: object, why: KillReason = KillReason.PROTOCOL
    ) -> None:
        """The child broke the protocol: it cannot be trusted any more."""
        step = self._step
        step.report(notices.protocol_broken(step.now_ms, slot.name, str(sent)))
        self.kill(slot, Kill(why, str(sent)), dump=False)

    # -- how -----------------------------------------------------------------------

    def kill(
        self, slot: Slot, kill: Kill, *, dump: bool = True, dump_s: float = DUMP_S
    ) -> None:
        """Decide once that a child is killed; it is judged when its tree is gone.

        Args:
            slot: the child's.
            kill: why.
            dump: whether its stacks are written first.
            dump_s: how long it may write them.
        """
        self._step.kills[kill.reason] += 1
        slot.killed = kill
        slot.killed_seq = slot.queue[0].seq if slot.queue else 0
        if len(slot.queue) > 1:
            self._step.out.append(cmd.Recall(slot.number, slot.seq))
        if not dump:
            self._idle.kill_now(slot)
            return
        slot.become(SlotState.DUMPING)
        self._step.wake_slot_at(slot, self._step.now_s + dump_s)
        self._step.out.append(cmd.Dump(slot.number))

    def stuck(self, slot: Slot, _detail: object) -> None:
        """It does not die (uninterruptible disk wait): its lease stays ours."""
        step = self._step
        step.report(notices.child_stuck(step.now_ms, slot.name, STUCK_S))
        step.out.append(cmd.Kill(slot.number))
        step.wake_slot_at(slot, step.now_s + STUCK_AGAIN_S)

    def late_done(self, slot: Slot, frame: object) -> None:
        """An end reported after the kill was decided still counts if it is valid."""
        done = expect_frame(frame, Done)
        runs = next((job for job in slot.queue if job.seq not in slot.dones), None)
        if runs and (done.seq, done.token) == (runs.seq, runs.lease.token):
            slot.dones[done.seq] = done

    def died(self, slot: Slot, exited: object) -> None:
        """A child that had jobs is gone, and its tree with it."""
        death = expect_frame(exited, inp.ChildExited)
        jobs, dones = list(slot.queue), dict(slot.dones)
        killed, killed_seq, now_s = slot.killed, slot.killed_seq, self._step.now_s
        if killed is None and death.fenced and jobs:
            killed = Kill(KillReason.STOPPED, "its lease had run out")
            killed_seq = jobs[0].seq
        cpu_before_s, before = slot.cpu_s, slot.ended_token
        self._step.out.append(cmd.Unwatch(slot.number, slot.allowed_bytes))
        empty(slot)
        back = blame.never_began(death, jobs, frozenset(dones))
        first = next((job.seq for job in jobs if job.seq not in dones), 0)
        blamed = first if killed is None else killed_seq
        for job in jobs:
            if job.seq in back:
                continue
            kill, done = killed, dones.get(job.seq)
            if job.seq != blamed and (killed is not None or done is None):
                # It began before its ticket could be recalled: it is not to blame.
                kill = Kill(KillReason.BESIDE)
            elif done is None:
                token = job.lease.token
                kill = blame.of_the_blamed(killed, token, death.marked, before)
            ending = blame.judge(
                death,
                done,
                kill,
                seq=job.seq,
                slot=slot.name,
                ran_s=0.0 if job.started_s is None else now_s - job.started_s,
                cpu_before_s=cpu_before_s,
                stopping=self._step.ending,
                encoded=job.lease.codec is not None,
            )
            self._accounting.end(slot, job, ending, done)
        self.put_back(slot, [job for job in jobs if job.seq in back])
        self._freed(slot)

    def put_back(self, slot: Slot, jobs: list[Assigned]) -> None:
        """Put jobs that never began back into the backlog, in their order."""
        self._pools[slot.pool].put_back(self._step.wanted(jobs))
        self._step.wake_at(self._step.now_s)


def expect_frame(value: object, expected: type[T]) -> T:
    """Return *value*, which the table has passed on, if it has the expected type.

    Raises:
        JobpoolBug: it has another type.
    """
    if not isinstance(value, expected):
        raise JobpoolBug(
            f"expected {expected.__name__}, got {type(value).__name__}; please report"
        )
    return value
