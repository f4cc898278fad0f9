"""What Linux reports about processes, read from /proc; nothing is cached.

A process that is gone is an ordinary result (None, 0 or an empty list), never an
error: it may end between any two of our lines.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from jobpool.core.safe_text import one_line
from jobpool.core.units import show_size
from jobpool.sandbox.system import reserve_fds

_READ_BYTES = 64 * 1024
_GONE = (FileNotFoundError, ProcessLookupError)
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Nothing can be read now, for want of descriptors or memory; it can be later."""
_STATE, _PARENT, _FLAGS, _THREADS, _START = 0, 1, 6, 17, 19
"""Positions in /proc/PID/stat after the name: fields 3, 4, 9, 20 and 22 of proc(5)."""
_PF_EXITING = 0x4
"""Among a thread's flags: the kernel is ending it; it runs nothing any more."""
_STATM_RESIDENT, STATM_DATA = 1, 5
_THREADS_MANY = 500
"""Up to here threads are read one by one, whatever the number of processes."""
_NAMED_MAX = 20
"""How many processes are named; a fork bomb has more."""


class ProcessStat(NamedTuple):
    """The identity and state of a process."""

    state: str
    """One letter, such as R, S, D, T or Z."""
    parent: int
    start_time: int
    """Clock ticks from boot to its start: with the pid, its identity."""
    threads: int = 1
    """How many, ended ones included."""
    flags: int = 0
    """The kernel's flags of the process's main thread."""

    @property
    def is_dead(self) -> bool:
        """Whether nothing of it runs and nothing is below it any more."""
        return self.state in "ZX" and self.threads <= 1


def page_bytes() -> int:
    """Return the size of a memory page."""
    return os.sysconf("SC_PAGE_SIZE")


def process_stat(pid: int) -> ProcessStat | None:
    """Return a process's identity, or None when it is gone."""
    return _stat(f"/proc/{pid}/stat")


def _stat(path: str) -> ProcessStat | None:
    text = read(path)
    if not text:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(
        fields[_STATE].decode(),
        int(fields[_PARENT]),
        int(fields[_START]),
        int(fields[_THREADS]),
        int(fields[_FLAGS]),
    )


def process_start_time(pid: int) -> int | None:
    """Return a process's start in clock ticks since boot; None when it is gone."""
    stat = process_stat(pid)
    return stat.start_time if stat else None


def is_alive(pid: int, start_time: int) -> bool:
    """Say whether the same process still runs, if only in one of its threads."""
    stat = process_stat(pid)
    return stat is not None and stat.start_time == start_time and not stat.is_dead


def runs_nothing(pid: int) -> bool:
    """Say whether a process is gone, or all its threads are ending.

    An ending process gives back its memory, then its files, and so its locks, and is
    a zombie last. Each of these may take a while.
    """
    threads = _threads_of(pid)
    stats = [_stat(f"/proc/{pid}/task/{thread}/stat") for thread in threads]
    if any(stat and not stat.flags & _PF_EXITING for stat in stats):
        return False
    # One that was being started by one of these is listed by now.
    return set(_threads_of(pid)) <= set(threads)


def _threads_of(pid: int) -> list[str]:
    try:
        return reserve_fds.with_reserve(os.listdir, f"/proc/{pid}/task")
    except _GONE:
        return []


def environment(pid: int) -> bytes:
    """Return the environment that a process was started with; ``b""``: it is gone.

    Where the main thread has ended before others, only those still show it.

    Raises:
        PermissionError: the process is another user's.
        OSError: no descriptor is left to read with, not even a reserved one.
    """
    if found := read(f"/proc/{pid}/environ"):
        return found
    stat = process_stat(pid)
    if stat is None or stat.state != "Z" or stat.is_dead:
        return b""
    names = _threads_of(pid)
    return next(
        filter(None, (read(f"/proc/{pid}/task/{n}/environ") for n in names)), b""
    )


def command_name(pid: int) -> str:
    """Return a process's short name, "?" when it is gone."""
    return (read(f"/proc/{pid}/comm") or b"?").decode("utf-8", "replace").strip()


def catches(pid: int, signum: int) -> bool:
    """Say whether a process handles a signal itself.

    False if no descriptor is left to read with: evidence must not delay a kill.
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
    for thread in _threads_of(pid):
        found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process, quickly also if it has many threads.

    Reading the list of each thread could take long. If it has more threads than there
    are processes, each process's parent is read instead.
    """
    threads = thread_count(pid)
    if threads == 1:  # the main thread: most processes have no other
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
    """Return the pids of all processes that this one may see."""
    return {
        int(name)
        for name in reserve_fds.with_reserve(os.listdir, "/proc")
        if name.isdigit()
    }


def descendants_of(pid: int) -> list[int]:
    """Return all living processes below one, nearest first."""
    found = children_of(pid)
    for child in found:
        found += children_of(child)  # the list that is being walked: breadth first
    return found


def descendants_in_words(pid: int) -> tuple[str, ...]:
    """Describe the living processes below one, the first of them by name and size.

    Empty if no descriptor is left to read with, as for `catches`.
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
    """Return what RLIMIT_DATA counts for this process."""
    return statm_bytes(read("/proc/self/statm"), STATM_DATA)


def statm_bytes(statm: bytes, field: int = _STATM_RESIDENT) -> int:
    """Read one field of /proc/PID/statm; 0 when there is nothing to read."""
    return int(statm.split(None, field + 1)[field]) * page_bytes() if statm else 0


def kib_bytes(text: bytes, labels: tuple[bytes, ...]) -> int:
    """Sum the lines of a /proc file that look like ``RssAnon:  12 kB``."""
    return 1024 * sum(
        int(line.split()[1]) for line in text.splitlines() if line.startswith(labels)
    )


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, all its threads'; 0.0 when it is gone.

    To the nanosecond, also of what runs at this moment.
    """
    try:
        # The id that clock_getcpuclockid(3) derives from a pid: one call, no file.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


class ThreadTimes(NamedTuple):
    """What the scheduler knows of a thread, since it began."""

    ran_s: float
    waited_s: float
    """It could run, but no processor was free for it."""


def threads(pid: int) -> Iterator[tuple[int, ThreadTimes]]:
    """Yield the threads of a process, by id; none when it, or the figures, are gone."""
    try:
        names = _threads_of(pid)
    except OSError:
        return
    for name in names:
        try:
            words = read(f"/proc/{pid}/task/{name}/schedstat").split()
        except OSError:
            continue
        if len(words) > 1:
            yield int(name), ThreadTimes(int(words[0]) / 1e9, int(words[1]) / 1e9)


def boot_id() -> str:
    """Return the identity of this boot of the host."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def pid_namespace() -> int:
    """Return the identity of the namespace in which our pids are valid."""
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - beside os.open


def read(path: str) -> bytes:
    """Return a /proc file's content; ``b""`` when its process is gone.

    Raises:
        PermissionError: the process is another user's.
        OSError: no descriptor is left to read with, not even a reserved one.
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
