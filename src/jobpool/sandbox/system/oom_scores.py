"""Keeps supervisor and zygotes from being what the kernel ends first.

A handler may write to /proc/PID/oom_score_adj of any process of its user, and no filter
of system calls sees whose file it is. A score that was raised so is put back; one that
was lowered, by an operator, stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from jobpool.sandbox.system.procfs import read


class OomScores:
    """The scores of this process, and of those that it has started."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._first = self._own = _score(self._pid) or 0

    def restore(self, pids: Iterable[int]) -> list[int]:
        """Put back the scores that were raised, and return whose they are.

        Args:
            pids: processes that this one has started, not reaped.
        """
        self._own = min(self._own, _score(self._pid) or 0)
        before = {**dict.fromkeys(pids, self._first), self._pid: self._own}
        return [pid for pid, score in before.items() if _restore(pid, score)]


def _score(pid: int) -> int | None:
    """Return a score; None: it is gone, another user's now, or out of sight.

    So it is while not one descriptor is left: the next time, then.
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
    except OSError:  # it is gone, or no descriptor is left: the next time, then
        return False
    try:
        os.write(file, b"%d" % score)
    except OSError:
        return False
    finally:
        os.close(file)
    return True
