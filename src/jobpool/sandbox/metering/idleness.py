"""Whether a child that says that it has no job rests, as the kernel sees it.

What a child says, a handler in it can say as well. It cannot make the kernel say that
its main thread waits in poll(2), without end, on the two descriptors on which a child
waits for a job, while that thread does anything else; nor that no processor time
passes while any of its threads or processes works.

Not seen: a thread of native code that does little, while the main thread imitates the
wait. On a kernel or machine that does not show the call of another process
(/proc/PID/syscall), only processor time is looked at. A process can hide it from other
ordinary processes (PR_SET_DUMPABLE): who does so after its first attempt has begun,
when no handler had run in it, does not rest.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping

from jobpool.sandbox.system import procfs

DOUBTS_MAX = 3
"""So many looks in a row must say the same: one may fall into a moment's work."""
SAMPLE_AFTER_S = 1.0
"""Looks that come sooner do not count."""
BUSY_SHARE = 0.5
"""More of a processor than any background thread of an application should need."""
_WAITED_ON = 2
_WORDS_OF_A_CALL = 9
"""Its number, six arguments, stack pointer and program counter."""
_WAITS: Mapping[str, tuple[int, ...]] = {
    "x86_64": (7, 219),
    "aarch64": (73, 128),
}
"""poll or ppoll, as libc's poll makes it; and restart_syscall, into which it turns when
the process was stopped and let go on. The arguments stay those of the first call."""


class Idleness:
    """The looks at one child while it rests.

    Args:
        pid: the job's process; not reaped while this is used.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._doubts = 0
        self._cpu_s = self._looked_s = 0.0
        self._was_shown: bool | None = None

    def learn(self) -> None:
        """An attempt is about to begin: note whether the first one finds it shown."""
        if self._was_shown is None:
            self._was_shown = waits_for_a_job(self._pid) is not None

    def begin(self) -> None:
        """The child says that its attempt is over."""
        self._doubts = 0
        self._looked_s = 0.0

    def sample(self, now_s: float, below: Iterable[int]) -> str:
        """Look once more.

        Args:
            now_s: monotonic time.
            below: its descendants.

        Returns:
            What it does that a child at rest does not, ``""`` while that is nothing
            or not yet certain.
        """
        passed_s = now_s - self._looked_s
        if passed_s < SAMPLE_AFTER_S:
            return ""
        cpu_s = sum(map(_cpu_s, (self._pid, *below)))
        used_s = cpu_s - self._cpu_s if self._looked_s else 0.0
        self._looked_s, self._cpu_s = now_s, cpu_s
        said, waits = "", waits_for_a_job(self._pid)
        if waits is None and self._was_shown:
            said = "hides what it does"
        elif waits is False:
            said = "does not wait for one"
        if used_s > BUSY_SHARE * passed_s:
            said = f"uses {used_s / passed_s:.0%} of a processor"
        self._doubts = self._doubts + 1 if said else 0
        return said if self._doubts >= DOUBTS_MAX else ""


def waits_for_a_job(pid: int) -> bool | None:
    """Say whether a process's main thread waits where children of ours wait.

    True also where that cannot be told; None: this process may not see it.
    """
    calls = _WAITS.get(platform.machine())
    try:
        words = procfs.read(f"/proc/{pid}/syscall").split()
    except PermissionError:
        return None
    except OSError:
        return True
    if calls is None or not words:
        return True
    if len(words) < _WORDS_OF_A_CALL:
        return False  # it runs, or was stopped outside of any call
    number, _array, count, timeout = (int(word, 0) for word in words[:4])
    endless = timeout in {0, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF}
    return number in calls and count == _WAITED_ON and endless


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process; 0.0 when it is gone."""
    try:
        # The number that clock_getcpuclockid(3) makes of a pid: one call, no file.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
