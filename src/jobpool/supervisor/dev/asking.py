"""Asking the store, in the store thread, from the thread in which handlers run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from jobpool.errors import StoreUnavailable
from jobpool.store.protocol import Store
from jobpool.supervisor.storage.inbox import Posts
from jobpool.supervisor.storage.thread import StoreThread

T = TypeVar("T")
LOOK_S = 0.1
"""How soon it is seen that no answer will come; Windows hears no Ctrl-C meanwhile."""


class Asking:
    """Asks the store, and waits for the answer: a `UseStore`.

    Args:
        thread: has the store.
    """

    def __init__(self, thread: StoreThread) -> None:
        self._thread = thread

    def __call__(self, question: Callable[[Store], T], /) -> T:
        """Return what the question returns, or raise what it raises.

        Raises:
            StoreUnavailable: also if the thread has ended, or the store was lost.
        """
        answers: list[T] = []
        errors: list[BaseException] = []
        answered = threading.Event()

        def chore(store: Store) -> Posts:
            try:
                answers.append(question(store))
            except BaseException as exc:  # noqa: BLE001 - raised where it was asked
                errors.append(exc)
            answered.set()
            return ()

        self._thread.chore(chore)
        while not answered.wait(LOOK_S):
            if self._thread.is_lost or not self._thread.is_alive():
                raise StoreUnavailable(
                    "the store is not usable any more, and jobpool dev ends; nothing "
                    "is known to be written"
                )
        if errors:
            raise errors[0]
        return answers[0]
