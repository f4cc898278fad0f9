"""Whether this process may be forked: checks what the import has left running."""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time

from jobpool.errors import AppError
from jobpool.sandbox.system.procfs import command_name, process_stat

_REMEDY = (
    "start them in on_child_start, or set preload = false for the pool, so that each "
    "child imports the application itself (see: jobpool manual deploying)"
)

SETTLE_S = 0.01
"""Between two looks at threads that may have been started just now."""
SETTLE_S_MAX = 2.0
"""How long such a thread may take to count itself, on a busy machine."""
_RESTING = 2
"""So often in a row none of them runs: one may have waited for its turn to do so."""


def check_fork_safety() -> list[str]:
    """Refuse what a fork would break, and name what it might break.

    Returns:
        Warnings, for `jobpool check`.

    Raises:
        AppError: Python threads run, or a library is active that is known not to
            survive a fork.
    """
    threads = [
        t.name for t in threading.enumerate() if t is not threading.main_thread()
    ]
    native = _native_threads()
    if native:
        _settle()
    unnamed = _thread._count() - len(threads)  # noqa: SLF001 - no public way
    if unnamed > 0:
        threads.append(f"{unnamed} without a name")
    if threads:
        raise AppError(
            "the application leaves threads running when it is imported "
            f"({', '.join(threads)}), and threads do not survive a fork: {_REMEDY}"
        )
    for library, is_active in (
        ("gRPC", "grpc" in sys.modules and bool(native)),
        ("CUDA", _cuda_is_active()),
    ):
        if is_active:
            raise AppError(
                f"the application starts {library} when it is imported, and {library} "
                f"does not survive a fork: {_REMEDY}"
            )
    if not native:
        return []
    warning = (
        f"{len(native)} threads of C libraries run after the import "
        f"({', '.join(sorted(set(native)))}); most libraries start them anew after a "
        "fork, but if children hang, set preload = false for the pool"
    )
    return [warning]


def _native_threads() -> list[str]:
    """Name the threads that Python does not know of."""
    return [command_name(task) for task in _unknown_tasks()]


def _unknown_tasks() -> list[int]:
    own = {t.native_id for t in threading.enumerate()}
    tasks = map(int, os.listdir("/proc/self/task"))  # noqa: PTH208 - names are what we want
    return [task for task in tasks if task not in own]


def _settle() -> None:
    """Let threads that were just started count themselves: they need a processor."""
    until_s = time.monotonic() + SETTLE_S_MAX
    resting = 0
    while resting < _RESTING and time.monotonic() < until_s:
        time.sleep(SETTLE_S)
        states = [stat.state for stat in map(process_stat, _unknown_tasks()) if stat]
        resting = 0 if "R" in states else resting + 1


def _cuda_is_active() -> bool:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    return bool(is_initialized is not None and is_initialized())
