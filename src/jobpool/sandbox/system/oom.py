"""The kernel's OOM killer: what it would choose first, and whether it has killed.

A handler may write to /proc/PID/oom_score_adj of any process of its user, and no filter
of system calls sees whose file it is. So that the supervisor and its zygotes are not
the first choice, a raised score is restored; one that an operator has lowered stays.

A SIGKILL that was not ours counts as its job's crash, unless the host ran out of memory
meanwhile: then the kernel chose a victim, and the job is not charged.

Source: ``oom_kill`` in /proc/vmstat, readable by all users, counts for the host.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from jobpool.sandbox.system.procfs import read


class OomScores:
    """The scores of this process and of those that it has started."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._first = self._own = _score(self._pid) or 0

    def restore(self, pids: Iterable[int]) -> list[int]:
        """Restore the scores that were raised, and return the pids.

        Args:
            pids: processes that this one has started and not reaped.
        """
        self._own = min(self._own, _score(self._pid) or 0)
        before = {**dict.fromkeys(pids, self._first), self._pid: self._own}
        return [pid for pid, score in before.items() if _restore(pid, score)]


class OomKills:
    """The host's count of OOM kills."""

    def __init__(self, vmstat: Path = Path("/proc/vmstat")) -> None:
        self._vmstat = vmstat
        self._last = self._count()

    def rose(self) -> bool:
        """Say whether the count rose since the last call."""
        before, self._last = self._last, self._count()
        return self._last > before

    def _count(self) -> int:
        """Return the count; 0 where the kernel does not provide it."""
        try:
            text = self._vmstat.read_text(encoding="ascii")
        except OSError:
            return 0
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
        return 0


def _score(pid: int) -> int | None:
    """Return a score; None: it cannot be read.

    The process is gone or another user's, or no descriptor is left: then the next
    call restores it.
    """
    with contextlib.suppress(OSError):
        if text := read(f"/proc/{pid}/oom_score_adj"):
            return int(text)
    return None


def _restore(pid: int, score: int) -> bool:
    seen = _score(pid)
    if seen is None or seen <= score:
        return False
    try:
        file = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # as for `_score`
        return False
    try:
        os.write(file, b"%d" % score)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
