"""Lets a handler fork copies of its child that behave like ordinary processes.

Theory of operation. A copy must not act as the child, and must die of the SIGTERM that
multiprocessing sends to its processes, which the child itself ignores. Such a signal
may arrive right after the fork: so it is blocked during the fork and delivered in the
copy once the default action is restored. Copies of copies are handled alike.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from jobpool.sandbox.confinement.setup import release_signals

_BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def watch_forks(become_copy: Callable[[], None]) -> None:
    """Prepare this process for being forked, from now on.

    Args:
        become_copy: called first in each copy, to drop what is the child's.
    """
    own = threading.local()  # threads may fork at the same time

    def before() -> None:
        own.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    def after_in_child() -> None:
        become_copy()
        release_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, own.mask)

    os.register_at_fork(
        before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
    )
