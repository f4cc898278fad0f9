"""From what was found of a child, alive or dead, to who has begun in it and who pays.

All of it is pure.
"""

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
    """Say which jobs of a dead child's queue go back uncharged, by their numbers.

    Those whose tickets nobody took. And, of those behind the first that has
    not reported its end, who left no mark: a child begins nothing before it has
    reported, so that a ticket without a mark was taken by a handler, not for the job.

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

    Not when its own mark is missing, and that of the attempt before it is there. If
    that is missing as well, somebody has wiped them out: perhaps from another slot.
    And who is the first in its child was robbed by nobody.

    Args:
        token: the attempt's.
        marked: tokens that have left marks; None: they are spoilt.
        before: token of the last attempt that has ended in its child; 0: none has.
    """
    return marked is None or token in marked or before not in marked


def of_the_blamed(
    kill: Kill | None, token: int, marked: frozenset[int] | None, before: int
) -> Kill | None:
    """Return why the child of the attempt that is to pay for it was killed.

    It pays only if it has begun beyond doubt: its mark is there, or nobody was before
    it in its child. Else the one before it may have taken its ticket, and done this.

    Args:
        kill: our own kill, if we killed it.
        token: as for `may_have_begun`, like the others.
        marked: as there.
        before: as there.
    """
    is_free = kill is not None and kill.reason not in _CHARGED
    if is_free or not before or token in (marked or ()):
        return kill
    return Kill(KillReason.BESIDE, "no mark says that it had begun")


def judge(
    death: ChildExited,
    done: Done | None,
    kill: Kill | None,
    *,
    slot: str,
    ran_s: float,
    cpu_before_s: float,
    stopping: bool,
) -> Ending:
    """Judge an attempt by its child's death; the arguments are `verdict_of_death`'s."""
    return verdict_of_death(
        death.exit,
        kill=kill,
        done=done,
        slot=slot,
        duration_s=ran_s,
        cpu_before_s=cpu_before_s,
        peak_rss_bytes=death.peak_rss_bytes,
        output=death.output,
        stack=death.stack,
        processes=death.processes,
        host_oom=death.host_oom,
        stopping=stopping,
    )
