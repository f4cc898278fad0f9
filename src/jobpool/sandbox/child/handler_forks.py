"""Lets a handler fork copies of its child that behave like ordinary processes.

Theory of operation. A copy must not speak in the child's name, and must die of the
SIGTERM that multiprocessing sends to its processes, which the child itself ignores.
Such a signal may come right after the fork: it is therefore blocked across it, and
delivered in the copy when the default action is back. Copies of copies come by here
as well.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from jobpool.sandbox.confinement.setup import release_signals

_BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def watch_forks(forsake: Callable[[], None]) -> None:
    """Prepare this process for being forked, from now on.

    Args:
        forsake: runs first in each copy; makes it let go of what is the child's.
    """
    own = threading.local()  # threads may fork at the same time

    def before() -> None:
        own.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    def after_in_child() -> None:
        forsake()
        release_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )
