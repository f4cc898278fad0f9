"""What a supervisor and its jobs hold on this machine: processes, files, memory."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple


class Census(NamedTuple):
    """Counts at one time, while nothing runs."""

    processes: int
    """Whose environment has the marker: the supervisor's, and all that they started."""
    descriptors: int
    """The supervisor's and its zygotes'."""
    memfds: int
    """Among these descriptors."""
    files: int
    """In the children's temporary directories."""
    rss_kib: int
    """The supervisor's resident memory."""


def take_census(supervisor_pid, marker, tmp):
    """Count what belongs to a supervisor.

    Args:
        supervisor_pid: its pid.
        marker: ``NAME=value``, a variable in its environment and no other's.
        tmp: its TMPDIR, which no other process uses.
    """
    family = [int(p.name) for p in Path("/proc").iterdir() if _has(p, marker.encode())]
    keepers = [supervisor_pid, *_zygotes(supervisor_pid)]
    links = [link for pid in keepers for link in _open_files(pid)]
    return Census(
        processes=len(family),
        descriptors=len(links),
        memfds=sum("memfd:" in link for link in links),
        files=sum(not path.is_dir() for path in Path(tmp).rglob("*")),
        rss_kib=_rss_kib(supervisor_pid),
    )


def _has(place, marker):
    if not place.name.isdigit():
        return False
    try:
        return marker in (place / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def _zygotes(supervisor_pid):
    place = Path(f"/proc/{supervisor_pid}/task/{supervisor_pid}/children")
    pids = [int(word) for word in place.read_text().split()]
    return [pid for pid in pids if _is_zygote(pid)]


def _is_zygote(pid):
    """A zygote leads no session of its own; a child does."""
    try:
        return os.getsid(pid) != pid
    except ProcessLookupError:
        return False


def _open_files(pid):
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return found


def _rss_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise LookupError(pid)
