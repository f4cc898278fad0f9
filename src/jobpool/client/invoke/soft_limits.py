"""The signal handlers of a child's soft limits, and replacing them temporarily.

Only the main thread may replace a handler, and handlers run only there, whichever
thread receives the signal. Outside a child these signals are not sent, and nothing is
replaced.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType

SOFT_SIGNALS = ("SIGUSR1", "SIGURG")
"""Sent by a child's supervisor at the soft limits of time and of memory."""
OnSignal = Callable[[int, FrameType | None], object]
"""A signal handler: takes the signal's number and the interrupted frame."""


@contextmanager
def handled_by(instead: Callable[[OnSignal], OnSignal]) -> Iterator[bool]:
    """Replace the handlers in the block; yields whether any was replaced.

    Args:
        instead: takes the installed handler, returns its replacement.
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
    """Hold soft limits back in the block; those that come are raised at its end.

    Blocking the signals would not suffice: another thread may receive one.
    """
    struck: list[Callable[[], object]] = []

    def noting(before: OnSignal) -> OnSignal:
        return lambda number, frame: struck.append(partial(before, number, frame))

    with handled_by(noting):
        yield
    for strike in struck:
        strike()
