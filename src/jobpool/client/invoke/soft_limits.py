"""The child's handlers of its soft limits, and what stands in their place for a while.

Only the main thread may replace a handler, and only there do handlers run, whatever
thread receives the signal. Outside of a child nobody sends these signals, and nothing
is replaced.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType

SOFT_SIGNALS = ("SIGUSR1", "SIGURG")
"""What a child's supervisor sends at the soft limits, of time and of memory."""
OnSignal = Callable[[int, FrameType | None], object]
"""A handler: takes the signal's number and the interrupted frame."""


@contextmanager
def handled_by(instead: Callable[[OnSignal], OnSignal]) -> Iterator[bool]:
    """Let others handle soft limits meanwhile; say whether any can come.

    Args:
        instead: takes the handler that stands there, returns the one to stand there.
    """
    is_any = False
    with ExitStack() as undo:
        if threading.current_thread() is threading.main_thread():
            for name in SOFT_SIGNALS:
                number = getattr(signal, name, 0)
                before = signal.getsignal(number) if number else None
                if callable(before):
                    signal.signal(number, instead(before))
                    undo.callback(signal.signal, number, before)
                    is_any = True
        yield is_any


@contextmanager
def held_back() -> Iterator[None]:
    """Let no soft limit strike meanwhile; what comes strikes at the end.

    To block the signals would not do: another thread may receive one.
    """
    struck: list[Callable[[], object]] = []

    def noting(before: OnSignal) -> OnSignal:
        return lambda number, frame: struck.append(partial(before, number, frame))

    with handled_by(noting):
        yield
    for strike in struck:
        strike()
