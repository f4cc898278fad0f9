"""Keeps the supervisor and its zygotes from being the OOM killer's first choice.

A handler may write to /proc/PID/oom_score_adj of any process of its user, and no filter
of system calls sees whose file it is. A raised score is restored; one that an operator
has lowered stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

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
