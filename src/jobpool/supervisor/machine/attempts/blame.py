"""Blame: which jobs have begun in a child, and which is charged for its death. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.core.rules.lifecycle import Ending
from jobpool.sandbox.protocol.messages import Done
from jobpool.sandbox.protocol.verdict import Kill, KillReason, verdict_of_death
from jobpool.supervisor.machine.inputs import ChildExited
from jobpool.supervisor.machine.state.slot import Assigned

_CHARGED = frozenset(
    {
        KillReason.TIMEOUT,
        KillReason.MEMORY,
        KillReason.PROCESSES,
        KillReason.STALLED,
        KillReason.PROTOCOL,
    }
)


def never_began(
    death: ChildExited, jobs: Sequence[Assigned], done: frozenset[int]
) -> frozenset[int]:
    """Return which jobs of a dead child's queue go back uncharged, by sequence number.

    Those whose tickets were not taken. Also those without a mark behind the first job
    whose end was not reported: a child begins no job before it has reported the one
    before, so such a ticket was taken by a handler, not to run its job.

    Args:
        death: how it ended.
        jobs: its queue, in order.
        done: numbers of those that have reported their ends.
    """
    never = frozenset(death.never_begun)
    behind = [job for job in jobs if job.seq not in done][1:]
    if death.marked is None:
        return never
    marked = death.marked
    return never | {job.seq for job in behind if job.lease.token not in marked}


def may_have_begun(token: int, marked: frozenset[int] | None, before: int) -> bool:
    """Say whether an attempt whose ticket is gone may run, by its slot's marks.

    Not if its own mark is missing while the mark of the attempt before it is there. If
    both are missing, they were wiped out, perhaps from another slot. The first attempt
    of a child cannot have lost its ticket to an earlier one.

    Args:
        token: the attempt's.
        marked: tokens that have left marks; None: the marks are damaged.
        before: token of the last attempt that has ended in its child; 0: none has.
    """
    return marked is None or token in marked or before not in marked


def of_the_blamed(
    kill: Kill | None, token: int, marked: frozenset[int] | None, before: int
) -> Kill | None:
    """Return the kill for which the blamed attempt is charged.

    It is charged only if it began beyond doubt: its mark is there, or no attempt was
    before it in its child. Else an earlier one may have taken its ticket and done this,
    or its child was killed from outside between its ticket and its mark.

    Args:
        kill: our own kill, if we killed the child.
        token: as for `may_have_begun`, like the others.
        marked: as there.
        before: as there.
    """
    is_free = kill is not None and kill.reason not in _CHARGED
    if is_free or not before or token in (marked or ()):
        return kill
    return Kill(KillReason.UNMARKED)


def judge(
    death: ChildExited,
    done: Done | None,
    kill: Kill | None,
    *,
    seq: int,
    slot: str,
    ran_s: float,
    cpu_before_s: float,
    stopping: bool,
    encoded: bool = False,
) -> Ending:
    """Judge an attempt by its child's death.

    Args:
        death: how the child ended.
        seq: the attempt's number in the child.
        done: as for `verdict_of_death`, like the others.
        kill: as there.
        slot: as there.
        ran_s: as there.
        cpu_before_s: as there.
        stopping: as there.
        encoded: as there.
    """
    return verdict_of_death(
        death.exit,
        kill=kill,
        done=done,
        slot=slot,
        duration_s=ran_s,
        cpu_before_s=cpu_before_s,
        peak_rss_bytes=death.peak_rss_bytes,
        memory_trail=death.memory_trail if death.trail_seq == seq else None,
        output=death.output,
        stack=death.stack,
        processes=death.processes,
        host_oom=death.host_oom,
        stopping=stopping,
        encoded=encoded,
    )
