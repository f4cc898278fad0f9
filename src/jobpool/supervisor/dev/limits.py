"""Says when the running attempt is past a limit that a supervisor would enforce.

A thread of its own: the handler has the main one. It also writes what the handler
reports of itself, and says what a first Ctrl-C waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import Alarm
from jobpool.core.units import show_duration, show_size
from jobpool.supervisor.dev.channel import StoreChannel
from jobpool.supervisor.machine.state.slot import Assigned

LOOK_EVERY_S = 0.25
_INSTEAD = "nothing ends it here; press Ctrl-C twice to interrupt it"


@dataclass(slots=True)
class _Running:
    """The attempt that runs, and what was said of it."""

    job: Assigned
    channel: StoreChannel
    began_s: float
    said: set[str] = field(default_factory=set)


class LimitWatch(threading.Thread):
    """Watches the attempt that runs in this process.

    Args:
        observe: takes events; from this thread, and from the handler's.
        clock: for durations and the times of events.
    """

    def __init__(self, observe: Callable[[Event], None], clock: Clock) -> None:
        super().__init__(name="jobpool-dev-limits", daemon=True)
        self._observe = observe
        self._clock = clock
        self._process = psutil.Process()
        self._running: _Running | None = None
        self._lock = threading.Lock()
        """For what was said of it; held for moments."""
        self._closing = threading.Event()
        self.canceled: frozenset[int] = frozenset()
        """Tokens of attempts that somebody has canceled."""
        self.ending = ""
        """What has asked for the end; "": nothing has."""

    def begin(self, job: Assigned, channel: StoreChannel) -> None:
        """Watch an attempt."""
        self._running = _Running(job, channel, self._clock.monotonic_s())

    def end(self) -> None:
        """It has ended; say if that was too late, though nobody has looked since."""
        with self._lock:
            running, self._running = self._running, None
            if running is not None:
                self._say(running, self._overdue(running))

    def close(self) -> None:
        """Watch nothing more."""
        self._closing.set()

    def run(self) -> None:
        """Look again and again."""
        while not self._closing.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Write what the attempt has reported, and say what is new of its limits."""
        running = self._running
        if running is None:
            return
        running.channel.flush()
        with self._lock:
            if self._running is running:
                self._say(running, self._overdue(running))
                self._say(running, self._passed(running))

    def _say(self, running: _Running, passed: Iterator[tuple[str, str]]) -> None:
        lease = running.job.lease
        for what, words in passed:
            if what not in running.said:
                running.said.add(what)
                text = f"job {lease.id} ({lease.kind}) {words}; {_INSTEAD}"
                self._observe(Alarm(at_ms=self._clock.utc_ms(), text=text))

    def _overdue(self, running: _Running) -> Iterator[tuple[str, str]]:
        """Yield what a supervisor would have ended it for, with words about the job."""
        limits, now_s = running.job.limits, self._clock.monotonic_s()
        lasts_s = now_s - running.began_s
        if lasts_s > limits.timeout_s:
            limit = show_duration(limits.timeout_s)
            yield "time", f"is past its time limit of {limit}: it would be killed"
        silent_s = now_s - max(running.began_s, running.channel.beat_s)
        most_s = limits.heartbeat_timeout_s
        if most_s is not None and silent_s > most_s:
            silent = f"has sent no heartbeat for {show_duration(most_s)}"
            yield "beat", f"{silent}: it would be killed as stalled"

    def _passed(self, running: _Running) -> Iterator[tuple[str, str]]:
        """Yield what else a supervisor would act on."""
        limits = running.job.limits
        rss_bytes = self._process.memory_info().rss
        if rss_bytes > limits.memory_bytes:
            limit, takes = show_size(limits.memory_bytes), show_size(rss_bytes)
            over = f"runs in a process of {takes}, over its memory limit of {limit}"
            yield "memory", f"{over}: it would be killed"
        if running.job.lease.token in self.canceled:
            yield "cancel", "was canceled"
        if self.ending:
            yield "ending", f"is waited for before the end ({self.ending})"
