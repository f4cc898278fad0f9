"""Waiting for something real, by name and with an end: no test sleeps blindly."""

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
