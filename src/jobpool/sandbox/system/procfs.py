"""What Linux tells about processes, read from /proc; nothing here is kept.

A process that is gone is an ordinary answer (None, 0 or an empty list), never an
error: it may end between any two lines of ours.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NamedTuple

from jobpool.core.safe_text import one_line
from jobpool.core.units import show_size
from jobpool.errors import JobpoolError
from jobpool.sandbox.system import reserve_fds

_READ_BYTES = 64 * 1024
_GONE = (FileNotFoundError, ProcessLookupError)
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Nothing can be looked at now, for want of descriptors or memory; later it can."""
_STATE, _PARENT, _THREADS, _START = 0, 1, 17, 19
"""Places in /proc/PID/stat after the name: fields 3, 4, 20 and 22 of proc(5)."""
_STATM_RESIDENT, STATM_DATA = 1, 5
_THREADS_MANY = 500
"""Fewer are read one by one, without a look at how many processes there are."""
_NAMED_MAX = 20
"""So many processes are named; a fork bomb has more."""


class ProcessStat(NamedTuple):
    """Who a process is."""

    state: str
    """One letter: R, S, D, T, Z and so on."""
    parent: int
    start_time: int
    """Clock ticks from boot to its start: with the pid, its identity."""
    threads: int = 1
    """Those that have ended with it included."""

    @property
    def is_dead(self) -> bool:
        """Whether nothing of it runs, and nothing is below it, any more."""
        return self.state == "Z" and self.threads <= 1


def require_linux() -> None:
    """Refuse a platform that lacks what the sandbox stands on.

    Raises:
        JobpoolError: this is not Linux, or Linux before 5.3; nothing was started.
    """
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        raise JobpoolError(
            f"jobpool runs jobs on Linux 5.3 or newer only, because it needs pidfds, "
            f"subreapers and memfds; this is {sys.platform}. Enqueueing works "
            "everywhere: run the supervisor on a Linux host."
        )


def page_bytes() -> int:
    """Return the size of a memory page."""
    return os.sysconf("SC_PAGE_SIZE")


def process_stat(pid: int) -> ProcessStat | None:
    """Return a process's identity, or None when it is gone."""
    text = read(f"/proc/{pid}/stat")
    if not text:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(
        fields[_STATE].decode(),
        int(fields[_PARENT]),
        int(fields[_START]),
        int(fields[_THREADS]),
    )


def process_start_time(pid: int) -> int | None:
    """Return a process's start in clock ticks since boot; None when it is gone."""
    stat = process_stat(pid)
    return stat.start_time if stat else None


def is_alive(pid: int, start_time: int) -> bool:
    """Say whether this very process still runs; a zombie does not."""
    stat = process_stat(pid)
    return stat is not None and stat.start_time == start_time and stat.state != "Z"


def command_name(pid: int) -> str:
    """Return a process's short name, "?" when it is gone."""
    return (read(f"/proc/{pid}/comm") or b"?").decode("utf-8", "replace").strip()


def catches(pid: int, signum: int) -> bool:
    """Say whether a process has a handler of its own for a signal.

    No, when there is no descriptor to look with: this is asked for evidence, and that
    stops no kill.
    """
    try:
        status = read(f"/proc/{pid}/status")
    except OSError:
        return False
    _before, _label, rest = status.partition(b"SigCgt:")
    caught = rest.split(None, 1)
    return bool(caught) and bool(int(caught[0], 16) >> (signum - 1) & 1)


def listed_children_of(pid: int) -> list[int]:
    """Return the children of a process, zombies included, as its threads list them.

    Complete only while the process is stopped: a list that changes under the
    reader may miss some (proc(5), "children").
    """
    found: list[int] = []
    try:
        threads = reserve_fds.with_reserve(os.listdir, f"/proc/{pid}/task")
    except _GONE:
        return found
    for thread in threads:
        found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def children_of(pid: int) -> list[int]:
    """Return what `listed_children_of` does, soon also if there are many threads.

    A handler could keep us reading for long: of who has more threads than there are
    processes, those are asked for their parent.
    """
    threads = thread_count(pid)
    if threads == 1:  # its first: most processes have no other
        return [*map(int, read(f"/proc/{pid}/task/{pid}/children").split())]
    if threads < _THREADS_MANY or threads < len(others := process_numbers()):
        return listed_children_of(pid)
    stats = ((other, process_stat(other)) for other in others)
    return [other for other, stat in stats if stat and stat.parent == pid]


def thread_count(pid: int) -> int:
    """Return how many threads a process has; 0 when it is gone."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # noqa: PTH116 - beside os.open
    except _GONE:
        return 0


def process_numbers() -> set[int]:
    """Return the numbers of all processes that this one may see."""
    return {
        int(name)
        for name in reserve_fds.with_reserve(os.listdir, "/proc")
        if name.isdigit()
    }


def descendants_of(pid: int) -> list[int]:
    """Return all living processes below one, nearest first."""
    found = children_of(pid)
    for child in found:
        found += children_of(child)  # grows what is being walked: breadth first
    return found


def descendants_in_words(pid: int) -> tuple[str, ...]:
    """Describe all living processes below one, the first of them by name and size.

    None of them, when there is no descriptor to look with: as in `catches`.
    """
    try:
        members = descendants_of(pid)
        words = [
            f"pid {one}  {show_size(resident_bytes(one))}  "
            f"{one_line(command_name(one))}"
            for one in members[:_NAMED_MAX]
        ]
    except OSError:
        return ()
    if len(members) > _NAMED_MAX:
        words.append(f"and {len(members) - _NAMED_MAX} more")
    return tuple(words)


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory; 0 when it is gone."""
    return statm_bytes(read(f"/proc/{pid}/statm"), _STATM_RESIDENT)


def data_bytes() -> int:
    """Return what RLIMIT_DATA counts of this process."""
    return statm_bytes(read("/proc/self/statm"), STATM_DATA)


def statm_bytes(statm: bytes, field: int = _STATM_RESIDENT) -> int:
    """Read one field of /proc/PID/statm; 0 when there is nothing to read."""
    return int(statm.split(None, field + 1)[field]) * page_bytes() if statm else 0


def kib_bytes(text: bytes, labels: tuple[bytes, ...]) -> int:
    """Sum the lines of a file of /proc that are such as ``RssAnon:  12 kB``."""
    return 1024 * sum(
        int(line.split()[1]) for line in text.splitlines() if line.startswith(labels)
    )


def boot_id() -> str:
    """Return the identity of this boot of the host."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def pid_namespace() -> int:
    """Return the identity of the namespace in which our pids have a meaning."""
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - beside os.open


def read(path: str) -> bytes:
    """Return a /proc file's content; ``b""`` when its process is gone.

    Raises:
        PermissionError: the process belongs to somebody else.
        OSError: there is no descriptor to look with, not even one kept back.
    """
    try:
        return reserve_fds.with_reserve(_read, path)
    except _GONE:
        return b""


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while chunk := os.read(fd, _READ_BYTES):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(fd)
