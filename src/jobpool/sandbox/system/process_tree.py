"""Kills whole process trees, so that nothing of them is left.

Theory of operation. Every child of ours is the subreaper of its own tree: whatever
its descendants do (setsid, double fork), they cannot leave it while it lives. A
walk therefore starts at the child and stops each process that it meets, until a
whole walk meets no new one; then everything but the root gets SIGKILL, and the root
is killed last. A process with a pending SIGKILL cannot fork any more, and a walk
after the kills proves that none slipped through.

When a child dies by itself, its orphans are reparented to the supervisor, the next
subreaper above: `sweep_orphans` kills those.

No pid is signalled on trust: it is pinned by a pidfd first, then its start time and
parent are compared, so that a recycled pid is never hit.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection

from jobpool.errors import JobpoolError
from jobpool.sandbox.system.libc import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl
from jobpool.sandbox.system.procfs import EXHAUSTED, children_of, process_stat
from jobpool.sandbox.system.spared import none_starts

ROUNDS_MAX = 200
"""After so many walks a tree that grows faster than it is stopped is killed anyway."""
Member = tuple[int, int]
"""A pid and its start time."""


def end_with(parent: int) -> None:
    """Let the kernel kill this process as soon as its parent ends.

    Forked copies do not inherit this; the thread that forked counts as the parent.

    Args:
        parent: the parent's pid; if it has ended already, this process ends now.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `end_with`."""
    prctl(PR_SET_PDEATHSIG, 0)


def become_subreaper() -> None:
    """Adopt the orphans of this process's descendants from now on.

    Raises:
        JobpoolError: the kernel does not allow it.
    """
    try:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError as exc:
        raise JobpoolError(
            f"jobpool may not adopt orphans here ({exc}), which it needs to end what a "
            "job leaves running: use Linux 3.4 or newer, and let any filter of this "
            "process's system calls allow prctl(PR_SET_CHILD_SUBREAPER, 1)"
        ) from exc


def send_signal(pidfd: int, signum: int) -> bool:
    """Signal the process of a pidfd; False: it is gone or not ours."""
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_tree(pid: int, pidfd: int) -> int:
    """Kill a process and everything below it; the process itself comes last.

    Returns at once, before the kernel has finished. If the root is already dead, its
    descendants are orphans (`sweep_orphans`). If they cannot be listed now, the root
    is killed all the same, and they become orphans.

    Args:
        pid: the root.
        pidfd: a pidfd of the root, which keeps *pid* from being recycled.

    Returns:
        How many descendants were killed.
    """
    send_signal(pidfd, signal.SIGSTOP)
    stopped: set[Member] = set()
    try:
        _kill_below(pid, stopped)
    except OSError as exc:
        if exc.errno not in EXHAUSTED:
            raise
    send_signal(pidfd, signal.SIGKILL)
    return len(stopped)


def _kill_below(pid: int, stopped: set[Member]) -> None:
    """Stop, then kill everything below a stopped process; record it in *stopped*."""
    killed: set[Member] = set()
    for _ in range(ROUNDS_MAX):
        if _stop_new(pid, stopped):
            continue
        if stopped == killed:
            break
        for member in stopped - killed:
            _signal_member(member, signal.SIGKILL)
        killed |= stopped
    for member in stopped - killed:
        _signal_member(member, signal.SIGKILL)


def sweep_orphans(
    known_pids: Collection[int], not_before: int
) -> frozenset[Member] | None:
    """Kill and reap children of this process that were not started here.

    Call it again until it finds none: dying takes a moment, and an orphan's own
    children become ours when it dies. Never call it while waiting for a fork whose pid
    is not known yet.

    Args:
        known_pids: children that were started here.
        not_before: start time (clock ticks since boot) of the first zygote; older
            or equally old processes are left alone.

    Returns:
        Unknown children that were found, dying ones included; None: they could not be
        listed, for want of descriptors or memory.
    """
    try:
        return frozenset(_sweep(known_pids, not_before))
    except OSError as exc:
        if exc.errno not in EXHAUSTED:
            raise
        return None


def _sweep(known_pids: Collection[int], not_before: int) -> set[Member]:
    with none_starts() as others:
        found = children_of(os.getpid())
    met = set()
    for pid in found:
        if pid in known_pids or pid in others:
            continue
        stat = process_stat(pid)
        if stat is None or stat.start_time <= not_before:
            continue
        met.add((pid, stat.start_time))
        if stat.state != "Z":
            # Our own child: until we reap it, its pid cannot be recycled.
            with contextlib.suppress(ProcessLookupError):
                _kill_own(pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return met


def _kill_own(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        kill_tree(pid, pidfd)
    finally:
        os.close(pidfd)


def _stop_new(root: int, stopped: set[Member]) -> bool:
    """Walk the tree once and stop each new process; say whether there was any."""
    fresh = False
    todo, inside = [root], {root}
    while todo:
        for pid in children_of(todo.pop()):
            stat = process_stat(pid)
            if stat is None or pid in inside or stat.is_dead:
                continue
            if stat.parent not in inside:
                fresh = True  # reparented meanwhile: walk again
                continue
            inside.add(pid)
            todo.append(pid)
            member = (pid, stat.start_time)
            if member not in stopped:
                _signal_member(member, signal.SIGSTOP)
                stopped.add(member)
                fresh = True
    return fresh


def _signal_member(member: Member, signum: int) -> None:
    """Signal a process if it is still the same one."""
    pid, start_time = member
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:
        # Out of descriptors. Its parent is stopped and cannot reap it, so the pid is
        # still its own: killing must not depend on a free descriptor.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)
        return
    try:
        stat = process_stat(pid)
        if stat is not None and stat.start_time == start_time:
            send_signal(pidfd, signum)
    finally:
        os.close(pidfd)
