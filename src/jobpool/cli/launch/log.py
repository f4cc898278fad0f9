"""The log writer: an observer that never makes its caller wait.

Theory of operation: `observe` only appends to a bounded queue; a daemon thread
renders and writes. When events come faster than they can be written, the least
valuable are dropped first (successes and output once the queue is half full, anything
once it is full), and a line says how many. After each batch the thread
rests a little, so that a flood does not take the interpreter's lock from the
supervisor's own threads. A reader that went away or stands still costs log lines,
never jobs.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import TextIO

from jobpool.core.clock import Clock, SystemClock
from jobpool.core.event_lines import human_line, json_line
from jobpool.core.events.event import Event, Level, Observer
from jobpool.core.events.jobs import JobOutput, JobSucceeded
from jobpool.core.events.supervisor import Alarm, LinesDropped
from jobpool.core.safe_text import unexpected

QUEUE_MAX = 10_000
"""Events that may wait to be written."""
_PLENTIFUL = (JobSucceeded, JobOutput)
_PLENTIFUL_SHARE = 2
"""They may fill one half of the queue: that is three times as many as the busiest
supervisor has to tell while the writer rests."""
_REST_S = 0.05
_CLOSE_S = 2.0
_CLOSE_WAITS = 20
_ROOM_MAY_COME = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A full disk costs the lines of its time, not all that come after it."""
_COLOURS = {Level.DEBUG: "2", Level.WARNING: "33", Level.ERROR: "1;31"}
_SUCCESS_COLOUR = "32"

Render = Callable[[Event], str]


class Both:
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def observe(self, event: Event) -> None:
        """Tell each."""
        for observer in self._observers:
            observer.observe(event)

    def hears(self, kind: type[Event]) -> bool:
        """Say whether any of them does."""
        return any(observer.hears(kind) for observer in self._observers)


def plain(event: Event) -> str:
    """Render for people where there is no terminal, in UTC."""
    return human_line(event, UTC)


def on_terminal(event: Event) -> str:
    """Render for people at a terminal: their time zone, the verdict in colour."""
    line = human_line(event, None)
    clock, _, rest = line.partition(" ")
    head, gap, tail = rest.partition("  ")
    succeeded = isinstance(event, JobSucceeded)
    colour = _SUCCESS_COLOUR if succeeded else _COLOURS.get(event.level)
    if colour:
        head = f"\x1b[{colour}m{head}\x1b[0m"
    return f"{clock} {head}{gap}{tail}"


def renderer(form: str, *, colour: bool) -> Render:
    """Return how to write an event: ``json`` or ``human``."""
    if form == "json":
        return json_line
    return on_terminal if colour else plain


class LogWriter:
    """Writes events of at least a level to a stream, from a thread of its own."""

    def __init__(
        self,
        stream: TextIO,
        render: Render,
        *,
        level: Level = Level.INFO,
        queue_max: int = QUEUE_MAX,
        clock: Clock | None = None,
    ) -> None:
        self._stream = stream
        self._render = render
        self._level = level
        self._queue_max = queue_max
        self._clock = clock or SystemClock()
        self._queue: deque[Event] = deque()
        self._dropped = 0
        self._rest = b""
        """Of a line that was written in part."""
        self._dropped_lock = threading.Lock()
        self._something = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._write_all, name="jobpool-log", daemon=True
        )
        self._thread.start()

    def observe(self, event: Event) -> None:
        """Queue an event, or drop and count it when there is no room."""
        if event.level < self._level:
            return
        room = self._queue_max
        if isinstance(event, _PLENTIFUL):
            room //= _PLENTIFUL_SHARE
        if len(self._queue) >= room:
            with self._dropped_lock:
                self._dropped += 1
            return
        self._queue.append(event)
        if not self._something.is_set():
            self._something.set()

    def hears(self, kind: type[Event]) -> bool:
        """Say whether events of a class are written."""
        return kind.level >= self._level

    def close(self, timeout_s: float = _CLOSE_S) -> bool:
        """Write what is queued and end.

        Args:
            timeout_s: gives up after so long: the reader may not be reading.

        Returns:
            Whether everything was written.
        """
        self._closing.set()
        self._something.set()
        # While the whole machine stands still, no more than one of them passes.
        for _ in range(_CLOSE_WAITS):
            self._thread.join(timeout_s / _CLOSE_WAITS)
            if not self._thread.is_alive():
                break
        return not self._thread.is_alive() and not self._queue

    def _write_all(self) -> None:
        while True:
            self._something.wait()
            self._something.clear()
            is_last = self._closing.is_set()
            if not self._write(self._batch()):
                return
            if is_last:
                return
            self._closing.wait(_REST_S)

    def _line(self, event: Event) -> str:
        """Return an event's line; a bug in that costs the one line alone."""
        try:
            return self._render(event)
        except Exception as exc:  # noqa: BLE001 - the log must go on
            text = f"a line about {event.name} is lost: {unexpected(exc)}"
            return self._render(Alarm(at_ms=event.at_ms, text=text))

    def _batch(self) -> list[Event]:
        events = [self._queue.popleft() for _ in range(len(self._queue))]
        with self._dropped_lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            events.append(LinesDropped(at_ms=self._clock.utc_ms(), lines=dropped))
        return events

    def _write(self, events: Sequence[Event]) -> bool:
        """Write a batch; False: the stream is gone, and nobody can be told."""
        if not events:
            return True
        try:
            lost = self._put("".join(f"{self._line(event)}\n" for event in events))
        except (OSError, ValueError):
            # Closed or broken: from now on the queue fills up and drops.
            return False
        if lost:
            said = [e.lines if isinstance(e, LinesDropped) else 1 for e in events]
            with self._dropped_lock:
                self._dropped += sum(said[-lost:])
        return True

    def _put(self, text: str) -> int:
        """Write lines, below Python's buffers; return how many a full disk has cost.

        With the buffers, which may be missing, the rest of a line could be lost.

        Raises:
            OSError: the stream is broken.
            ValueError: it is closed.
        """
        stream = self._stream
        buffer = getattr(stream, "buffer", None)
        if buffer is None:  # not a file's
            stream.write(text)
            stream.flush()
            return 0
        raw = getattr(buffer, "raw", buffer)
        text = text.replace("\n", os.linesep)
        encoded = text.encode(stream.encoding, stream.errors or "strict")
        data, at = self._rest + encoded, 0
        try:
            stream.flush()  # what others have written to it
            while at < len(data):
                taken = raw.write(data[at:])
                if taken is None:
                    raise BlockingIOError(errno.EAGAIN, "the reader stands still")
                at += taken
        except OSError as exc:
            if exc.errno not in _ROOM_MAY_COME:
                raise
        is_begun = data[at - 1 : at] != b"\n" if at else bool(self._rest)
        end = data.find(b"\n", at) + 1 if is_begun else at
        self._rest = data[at:end]
        return data.count(b"\n", end)
