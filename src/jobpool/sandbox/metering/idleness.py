"""Whether a child that reports no job is idle, as the kernel sees it.

Whatever a child reports, a handler in it can report as well. But it cannot make the
kernel show its main thread waiting in poll(2), without a timeout, on the two
descriptors on which a child waits for a job, while that thread does anything else; nor
hide the processor time of its threads and processes.

On a busy machine, what computes all the time gets a small share of a processor. So time
in which a thread could run, but none was free for it, does not count.

Not detected: a thread of native code that does little while the main thread imitates
the wait. On a kernel or machine that does not show another process's system call
(/proc/PID/syscall), only processor time is checked. A process can hide its call from
other ordinary processes (PR_SET_DUMPABLE): one that did not hide it before its first
attempt, when no handler had run in it, and does later is not idle.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping

from jobpool.sandbox.system import procfs

DOUBTS_MAX = 3
"""How many samples in a row must agree: one may hit a moment's work."""
SAMPLE_AFTER_S = 1.0
"""Samples that come sooner do not count."""
BUSY_SHARE = 0.5
"""A larger share of a processor than an application's background threads need."""
_UNSUSPICIOUS_SHARE = 0.1
"""With so little it is not asked for what its threads had to wait."""
_WAITED_ON = 2
_WORDS_OF_A_CALL = 9
"""Its number, six arguments, stack pointer and program counter."""
_WAITS: Mapping[str, tuple[int, ...]] = {
    "x86_64": (7, 219),
    "aarch64": (73, 128),
}
"""poll or ppoll, as libc's poll calls it; and restart_syscall, which replaces it when
the process was stopped and continued. The arguments stay those of the first call."""


class Idleness:
    """The samples of one child while it should be idle.

    Args:
        pid: the job's process; not reaped while this is used.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._doubts = 0
        self._cpu_s = self._sampled_s = 0.0
        self._threads: dict[int, procfs.ThreadTimes] = {}
        """As they were at the last sample; empty: nobody has asked."""
        self._was_shown: bool | None = None

    def learn(self) -> None:
        """Note, before the first attempt, whether the child's system call is shown."""
        if self._was_shown is None:
            self._was_shown = waits_for_a_job(self._pid) is not None

    def begin(self) -> None:
        """Start over: the child reports that its attempt has ended."""
        self._doubts = 0
        self._sampled_s = 0.0

    def sample(self, now_s: float, below: Iterable[int]) -> str:
        """Take one more sample.

        Args:
            now_s: monotonic time.
            below: its descendants.

        Returns:
            What it does that an idle child does not; ``""``: nothing, or it is not
            certain yet.
        """
        passed_s = now_s - self._sampled_s
        if passed_s < SAMPLE_AFTER_S:
            return ""
        tree = (self._pid, *below)
        cpu_s = sum(map(procfs.cpu_s, tree))
        used_s = cpu_s - self._cpu_s if self._sampled_s else 0.0
        share = used_s / passed_s
        if share > _UNSUSPICIOUS_SHARE:
            share = max(share, self._wanted(tree, passed_s))
        else:
            self._threads = {}
        self._sampled_s, self._cpu_s = now_s, cpu_s
        doubt, waits = "", waits_for_a_job(self._pid)
        if waits is None and self._was_shown:
            doubt = "hides what it does"
        elif waits is False:
            doubt = "does not wait for one"
        if share > BUSY_SHARE:
            doubt = f"uses {share:.0%} of a processor"
        self._doubts = self._doubts + 1 if doubt else 0
        return doubt if self._doubts >= DOUBTS_MAX else ""

    def _wanted(self, pids: Iterable[int], passed_s: float) -> float:
        """Return the share of a processor that its threads would use if one was free.

        Each for itself: of what many threads that wake up together wait for each other,
        the sum may be longer than the time that has passed. 0.0: not known yet.
        """
        before = self._threads
        self._threads = {
            thread: times for pid in pids for thread, times in procfs.threads(pid)
        }
        share = 0.0
        for thread, now in self._threads.items():
            then = before.get(thread, now)
            ran_s = now.ran_s - then.ran_s
            could_s = passed_s - (now.waited_s - then.waited_s)
            share += ran_s / max(could_s, ran_s) if ran_s else 0.0
        return share


def waits_for_a_job(pid: int) -> bool | None:
    """Say whether a process's main thread waits for a job.

    True also where the kernel does not show it; None: this process may not see it.
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
        return False  # it runs, or was stopped outside any call
    number, _array, count, timeout = (int(word, 0) for word in words[:4])
    endless = timeout in {0, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF}
    return number in calls and count == _WAITED_ON and endless
