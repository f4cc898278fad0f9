"""Sends what an observer is told to somewhere else, from a thread of its own.

Theory of operation. `put` is called by the loop, which must not wait: it only puts a
thing aside. The thread makes of some of them what is to be sent, sends that, and goes
on. Whatever is lost is counted by its reason, and told now and then: what found no
room, was not taken, could not be made, or was left when an end could wait no longer. A
bug in making or sending one thing costs that thing alone.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

from jobpool.core.clock import Clock
from jobpool.core.safe_text import unexpected

EVERY_S = 1.0
"""How long one thing waits for others to go with it."""
TOLD_EVERY_S = 30.0
"""Between two complaints in the log."""
_FULL = "too many waited to be sent"
_LATE = "the end did not wait for them"
_UNANSWERED = "no answer came before the end"
_REASONS_MAX = 10
"""Different ones at a time; all others are told as one."""
T = TypeVar("T")
M = TypeVar("M")
T_contra = TypeVar("T_contra", contravariant=True)


class Carrier(Protocol[T_contra, M]):
    """Makes, sends and tells; all of it in the thread of a `Sending`."""

    def make(self, thing: T_contra, /) -> M | None:
        """Return what is sent of a thing; None: nothing is."""
        ...

    def send(self, made: Sequence[M], /) -> None:
        """Send some; `Sending.arrived` and `Sending.lose` are told what comes of it."""
        ...

    def tell(self, things: int, reason: str, /) -> None:
        """Say that so many more were lost."""
        ...


class Bounds(NamedTuple):
    """How much may wait."""

    things: int
    at_once: int
    """So many are sent together."""
    size_bytes: float = inf
    """Of all that wait."""


class Sending(Generic[T, M]):
    """Has a carrier send what is put aside, from `start` to `close`.

    Args:
        name: the thread's.
        carrier: sends.
        bounds: how much may wait.
        clock: for durations.
    """

    def __init__(
        self, name: str, carrier: Carrier[T, M], bounds: Bounds, clock: Clock
    ) -> None:
        self._carrier = carrier
        self._bounds = bounds
        self._clock = clock
        self._lock = threading.Lock()
        """For what follows; held for moments, and never while anything is sent."""
        self._aside: deque[tuple[T, int]] = deque()
        self._aside_bytes = 0
        self._in_flight = 0
        """What was taken from there and has neither arrived nor is lost."""
        self._lost: Counter[str] = Counter()
        """By reason, since the log was last told."""
        self._is_over = False
        self._told_s = -inf
        self._until_s = inf
        """When the end can wait no longer."""
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def left_s(self) -> float:
        """How much time is left before the end; infinite as long as none has come."""
        return max(0.0, self._until_s - self._clock.monotonic_s())

    def put(self, thing: T, size_bytes: int = 0) -> None:
        """Put a thing aside, or count it as lost if there is no room."""
        with self._lock:
            together_bytes = self._aside_bytes + size_bytes
            waiting = len(self._aside) + 1
            has_room = waiting <= self._bounds.things
            if not has_room or together_bytes > self._bounds.size_bytes:
                self._lost[_FULL] += 1
                return
            self._aside.append((thing, size_bytes))
            self._aside_bytes = together_bytes
        if waiting == self._bounds.at_once:
            self._wanted.set()

    def arrived(self, things: int | None = None) -> None:
        """Know of things that they have arrived; None: all that were sent."""
        with self._lock:
            left = 0 if things is None else self._in_flight - things
            self._in_flight = max(0, left)

    def lose(self, things: int, reason: str) -> None:
        """Count things that were sent, or were to be, as lost; from any thread."""
        with self._lock:
            if self._is_over:  # they were counted when nobody waited any longer
                return
            self._in_flight = max(0, self._in_flight - things)
            if reason not in self._lost and len(self._lost) >= _REASONS_MAX:
                reason = "other reasons"
            self._lost[reason] += things

    def start(self) -> None:
        """Begin to send, in the background."""
        self._thread.start()

    def close(self, within_s: float, hurry: Callable[[], None] | None = None) -> None:
        """Send what is left, and end; what was not sent by then is told as lost.

        Args:
            within_s: how long is waited for that, and as long again for its thread.
            hurry: called in between, if that is sending something still.
        """
        self._until_s = self._clock.monotonic_s() + within_s
        self._closing.set()
        self._wanted.set()
        self._thread.join(within_s)
        if self._thread.is_alive() and hurry is not None:
            hurry()
        self._thread.join(within_s)
        self._end()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait(EVERY_S)
            self._wanted.clear()
            self._send_all()
        self._send_all()
        self._end()

    def _send_all(self) -> None:
        while some := self._take():
            made = []
            for thing in some:
                with self._counting(1):
                    one = self._carrier.make(thing)
                    if one is None:
                        self.arrived(1)
                    else:
                        made.append(one)
            if made:
                with self._counting(len(made)):
                    self._carrier.send(made)
            self._tell()
        self._tell()

    def _take(self) -> Sequence[T]:
        """Take some of what was put aside; nothing once the end can wait no longer."""
        if not self.left_s:
            return ()
        with self._lock:
            number = min(self._bounds.at_once, len(self._aside))
            some = [self._aside.popleft() for _ in range(number)]
            self._aside_bytes -= sum(size_bytes for _, size_bytes in some)
            self._in_flight += number
        return [thing for thing, _ in some]

    @contextmanager
    def _counting(self, things: int) -> Iterator[None]:
        """Go on after a bug, and count what it has cost."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001 - nobody would hear of it otherwise
            self.lose(things, f"{unexpected(exc)}; no job is affected")

    def _end(self) -> None:
        """Count all that was not sent; from whichever thread is there first."""
        with self._lock:
            left = {_LATE: len(self._aside), _UNANSWERED: self._in_flight}
            self._lost.update({why: some for why, some in left.items() if some})
            self._aside.clear()
            self._in_flight = 0
            self._is_over = True
        self._tell()

    def _tell(self) -> None:
        now_s = self._clock.monotonic_s()
        with self._lock:
            is_time = self._is_over or now_s - self._told_s >= TOLD_EVERY_S
            if not self._lost or not is_time:
                return
            lost, self._lost = self._lost, Counter()
            self._told_s = now_s
        for reason, things in lost.items():
            self._carrier.tell(things, reason)
