"""From what the loop found of a dead child to the ending of the attempt in it; pure."""

from __future__ import annotations

from jobpool.core.lifecycle import Ending
from jobpool.sandbox.frames import Done
from jobpool.sandbox.verdict import Kill, verdict_of_death
from jobpool.supervisor.messages import ChildExited


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
