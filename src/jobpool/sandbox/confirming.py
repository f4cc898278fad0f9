"""What a process tree really has of memory, without what it shares or maps from files.

Costs far more than a look at resident memory: done once, before a kill.
"""

from __future__ import annotations

from jobpool.sandbox.procfs import descendants_of, labeled_bytes, resident_bytes


def confirmed_bytes(root: int, limit_bytes: int) -> int:
    """Measure a tree.

    One process: its own anonymous and shared memory. Several: each one's proportional
    share, since what they share would count several times.

    Args:
        root: pid of its first process.
        limit_bytes: measuring may end once the figure is over it.

    Returns:
        Bytes: the whole figure, or one that is over the limit.
    """
    below = descendants_of(root)
    if not below:
        return labeled_bytes(f"/proc/{root}/status", (b"RssAnon:", b"RssShmem:"))
    total = 0
    for pid in (root, *below):
        total += _proportional_bytes(pid)
        if total > limit_bytes:
            break
    return total


def _proportional_bytes(pid: int) -> int:
    try:
        return labeled_bytes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    except PermissionError:
        # It has made itself unreadable (PR_SET_DUMPABLE): count it in full.
        return resident_bytes(pid)
