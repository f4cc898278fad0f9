"""Proves that another supervisor's run is dead, after killing what is left of it.

Theory of operation. Jobs of a run may be started again only when no process of it can
be alive. The checks, in this order: its lock is free (the supervisor is gone); it is of
this boot (otherwise everything is gone); its pids are of our pid namespace; its
supervisor's pid does not name the same process any more, or one whose threads are all
ending: it has lost its lock before it is a zombie. Then whatever is left is
killed, tree by tree, and searched for again: every child on record; every process with
the run's marker in the environment that it was started with; and, where the run had a
cgroup, everything in it, which finds daemons that have left everything else behind.
Only when these searches find no process are the marks read: nothing can change them any
more. If a handler has damaged one, every job of the run may have begun.

What cannot be proven stays as it is, with a reason that an operator can act on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from jobpool.core.application.current import RUN_VARIABLE
from jobpool.sandbox.cgroups.cgroup import Group, read_group
from jobpool.sandbox.runs.marks import read_marks
from jobpool.sandbox.runs.run_directory import (
    Header,
    held_runs,
    occupied_marks,
    read_cgroup,
    read_header,
    read_slots,
)
from jobpool.sandbox.system.process_tree import Member, kill_tree
from jobpool.sandbox.system.procfs import (
    boot_id,
    command_name,
    environment,
    is_alive,
    pid_namespace,
    process_start_time,
    runs_nothing,
)

KILL_WAIT_S = 0.5
"""How long one call waits for survivors to die; a later call tries again."""
_KILL_STEP_S = 0.002
_NAMED_MAX = 5


class DeadRun(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing of the run is alive; its leases may be taken back."""

    running_tokens: frozenset[int] | None = None
    """Attempts that were running when it died; None: that is unknown."""
    killed: int = 0
    """Survivors that were killed."""


class Alive(msgspec.Struct, frozen=True):
    """Its supervisor runs."""


class Unproven(msgspec.Struct, frozen=True):
    """It may or may not be alive; its leases must stay."""

    reason: str


Proof = DeadRun | Alive | Unproven


def prove_dead(
    root: str | Path,
    run_id: str,
    *,
    same_boot: bool = True,
    wait_s: float = KILL_WAIT_S,
    killed: set[Member] | None = None,
) -> Proof:
    """Find out whether a run of this host is dead; kill what is left of one that is.

    Args:
        root: directory of all runs of the store.
        run_id: the run.
        same_boot: False: the store knows that the host was restarted since.
        wait_s: longest time to wait for survivors to die.
        killed: survivors that earlier calls have killed; those of this one are added.
    """
    path = Path(root, run_id)
    if run_id in held_runs():
        return Alive()
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError as exc:
        if not same_boot:
            return DeadRun()
        return Unproven(
            f"its run directory {path} cannot be read ({exc.strerror}); if no process "
            f"with {RUN_VARIABLE}={run_id} runs on its host, release its jobs by hand"
        )
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return Alive()
    try:
        killed = set() if killed is None else killed
        return _examine(path, same_boot=same_boot, wait_s=wait_s, killed=killed)
    except (OSError, ValueError) as exc:
        return Unproven(f"its record in {path} cannot be read: {exc}")
    finally:
        os.close(lock)


def _examine(
    path: Path, *, same_boot: bool, wait_s: float, killed: set[Member]
) -> Proof:
    """Judge a run whose supervisor does not hold its lock."""
    header = None
    with contextlib.suppress(FileNotFoundError):
        header = read_header(path)
    if not same_boot or (header is not None and header.boot_id != boot_id()):
        return DeadRun()
    if header is None:
        # It died before it was complete, and so before it forked anything.
        return DeadRun(running_tokens=frozenset())
    if header.pid_namespace != pid_namespace():
        if header.pid == 1:
            # The kernel kills a namespace with its first process.
            return DeadRun(running_tokens=_running_tokens(path))
        return Unproven(
            f"its supervisor was pid {header.pid} of another container or pid "
            "namespace, which this one cannot see into; start jobpool as the first "
            "process of its container, or in the same pid namespace"
        )
    if is_alive(header.pid, header.start_time) and not runs_nothing(header.pid):
        return Unproven(
            f"its supervisor (pid {header.pid}) exists but does not hold its lock"
        )
    return _end_survivors(path, header, wait_s, killed)


def _end_survivors(
    path: Path, header: Header, wait_s: float, killed: set[Member]
) -> Proof:
    deadline_s = time.monotonic() + wait_s
    group = read_group(read_cgroup(path), header.run_id)
    # What was killed gives back its memory, and so its marker, before its files.
    while survivors := {
        *_survivors(path, header.run_id, group),
        *(member for member in killed if is_alive(*member)),
    }:
        if os.getpid() in {pid for pid, _start in survivors}:
            return Unproven("this process was itself started by a job of that run")
        if time.monotonic() >= deadline_s:
            names = [f"{command_name(p)} (pid {p})" for p, _s in sorted(survivors)]
            return Unproven(
                f"{len(names)} of its processes do not die: "
                f"{', '.join(names[:_NAMED_MAX])}"
            )
        for member in survivors:
            _kill(member)
        if group is not None:
            group.kill()
        killed |= survivors
        time.sleep(_KILL_STEP_S)
    if group is not None:
        group.remove()
    return DeadRun(running_tokens=_running_tokens(path), killed=len(killed))


def _survivors(
    path: Path, run_id: str, group: Group | None
) -> Iterator[tuple[int, int]]:
    """Yield pid and start time of the run's living processes, some of them twice."""
    for pid in group.members() if group is not None else ():
        if (start := process_start_time(pid)) is not None:
            yield pid, start
    for pid, start_time in read_slots(path):
        if is_alive(pid, start_time):
            yield pid, start_time
    marker = f"{RUN_VARIABLE}={run_id}".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are what we want
        if name.isdigit() and marker in _environment(int(name)).split(b"\0"):
            start = process_start_time(int(name))
            if start is not None:
                yield int(name), start


def _environment(pid: int) -> bytes:
    try:
        return environment(pid)
    except PermissionError:
        return b""  # another user's, so not of a run of ours


def _kill(member: tuple[int, int]) -> None:
    pid, start_time = member
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if process_start_time(pid) == start_time:
            kill_tree(pid, pidfd)
    finally:
        os.close(pidfd)


def _running_tokens(path: Path) -> frozenset[int] | None:
    """Return the attempts that had begun; None: all may have."""
    occupied = set(occupied_marks(path))
    tokens: set[int] = set()
    for mark in occupied.union(path.glob("mark.*")):
        found = read_marks(mark)
        if found is not None:
            tokens |= found
        elif mark in occupied:
            return None
    return frozenset(tokens)
