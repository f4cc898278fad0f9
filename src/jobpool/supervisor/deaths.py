"""From what the loop found of a dead child to the ending of the attempt in it; pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobpool.core.lifecycle import Ending
from jobpool.sandbox.frames import Done
from jobpool.sandbox.verdict import Kill, verdict_of_death
from jobpool.supervisor.messages import ChildExited
from jobpool.supervisor.slot import Assigned


def never_began(
    death: ChildExited, jobs: Sequence[Assigned], done: frozenset[int]
) -> frozenset[int]:
    """Say which jobs of a dead child's queue go back uncharged, by their numbers.

    Those whose tickets were left in the pipe. And, of those behind the first that has
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
