"""Waiting for something real, by name and with an end: no test sleeps blindly."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import pytest

from jobpool.errors import JobpoolError

T = TypeVar("T")

POLL_S_MIN = 0.001
POLL_S_MAX = 0.02


def wait_until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """Poll until *condition* holds, and return what it returned.

    Args:
        condition: asked again and again; holds when its result is true. What it
            raises goes straight to the test.
        timeout_s: seconds after which the test fails; it is asked once more then.
        what: the condition in words, for the failure's message.
    """
    __tracebackhide__ = True
    deadline = time.monotonic() + timeout_s
    pause_s = POLL_S_MIN
    while True:
        is_last = time.monotonic() >= deadline
        if result := condition():
            return result
        if is_last:
            pytest.fail(f"{what}: not within {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, POLL_S_MAX)


def in_thread(act):
    """Call in a thread; return a list that gets what it returns or raises."""
    end = []

    def work():
        try:
            end.append(act())
        except JobpoolError as error:
            end.append(error)

    threading.Thread(target=work, daemon=True).start()
    return end


class Running:
    """Counts the seconds in which this machine ran, from when it is entered.

    A promise about time is one about a machine that runs. A busy or a virtual one may
    run nothing for seconds: then a thread that sleeps for a moment wakes up as much too
    late. What it was late is not counted.

    Args:
        cpu: the processor that is looked at; None: whichever is free.
    """

    NAP_S = 0.02
    LATE_S = 0.1
    """Less is usual."""

    def __init__(self, cpu: int | None = None) -> None:
        self._cpu = cpu
        self._ends = threading.Event()
        self._pauses: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._nap, daemon=True)

    def __enter__(self) -> Self:
        self.began_s = self._due_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ends.set()
        self._thread.join()

    def ran_s(self, from_s: float | None = None, until_s: float | None = None) -> float:
        """Return how long it ran between two times: from the first until now."""
        from_s = self.began_s if from_s is None else from_s
        now_s = time.monotonic()
        until_s = now_s if until_s is None else until_s
        due_s = self._due_s  # before the list, to which it may be added just now
        pauses = dict(self.pauses())
        if not self._ends.is_set() and now_s - due_s > self.LATE_S:
            pauses.setdefault(due_s, now_s)  # it is over for this thread first
        stood_s = (
            min(until_s, end_s) - max(from_s, begin_s)
            for begin_s, end_s in pauses.items()
        )
        return until_s - from_s - sum(max(0.0, one) for one in stood_s)

    def stood_ms(self) -> float:
        """Return for how long it did not run."""
        return 1000 * (time.monotonic() - self.began_s - self.ran_s())

    def pauses(self) -> list[tuple[float, float]]:
        """Return from when until when it did not run, in monotonic seconds."""
        return [*self._pauses]

    def _nap(self) -> None:
        if self._cpu is not None:
            os.sched_setaffinity(0, {self._cpu})  # of this thread
        while not self._ends.is_set():
            self._due_s = time.monotonic() + self.NAP_S
            self._ends.wait(self.NAP_S)
            now_s = time.monotonic()
            if now_s - self._due_s > self.LATE_S:
                self._pauses.append((self._due_s, now_s))


@contextlib.contextmanager
def side_by_side(
    stories: Mapping[Hashable, Callable[[], T]], at_once: int | None = None
):
    """Begin stories that mostly wait, each in a thread; yield their futures by key.

    A test of each asks for its `result`, which raises what the story has raised.

    Args:
        stories: what is told, in this order.
        at_once: so many at the same time; None: all.
    """
    with ThreadPoolExecutor(at_once or len(stories)) as pool:
        yield {key: pool.submit(story) for key, story in stories.items()}
