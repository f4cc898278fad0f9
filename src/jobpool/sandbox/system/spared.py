"""Children of this process that are no attempt's: sweeps of orphans leave them alone.

A supervisor kills and reaps every child that it does not know, since it is what an
attempt has left. Threads that start a program of their own do it here.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pids: set[int] = set()


@contextmanager
def spared(
    start: Callable[[], subprocess.Popen[bytes]],
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that no sweep ends.

    Args:
        start: starts it. Whoever uses this waits for its end before leaving.
    """
    with _lock:  # no sweep sees it before its pid is known
        process = start()
        _pids.add(process.pid)
    try:
        yield process
    finally:
        with _lock:
            _pids.discard(process.pid)


@contextmanager
def none_starts() -> Iterator[frozenset[int]]:
    """Return the pids of these programs; meanwhile none is started."""
    with _lock:
        yield frozenset(_pids)
