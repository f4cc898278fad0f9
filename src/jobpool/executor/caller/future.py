"""The future of one call, which may move from the host back to the caller's queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import LOGGER, PENDING, RUNNING
from typing import Any, NamedTuple

from jobpool.executor.pickling.lending import Loan
from jobpool.executor.wire import spill_files


class JobFuture(Future[Any]):
    """A future that can go back from running to waiting.

    It counts as running once its call is with the host, which gets few more calls than
    its children can run at once (`concurrent.futures` does the same). A call that the
    host cannot begin soon comes back, and can be canceled again.
    """

    def wait_again(self) -> None:
        """Note that the call came back from the host without having begun."""
        with self._condition:
            if self._state == RUNNING:
                self._state = PENDING

    def _invoke_callbacks(self) -> None:
        """Call all callbacks, whatever one raises, SystemExit included.

        The standard library lets SystemExit out. KeyboardInterrupt is raised in the
        main thread once all are called.
        """
        callbacks: list[Callable[[Future[Any]], object]]
        callbacks = self._done_callbacks  # type: ignore[attr-defined] # no public way
        interrupt = None
        for callback in callbacks:
            try:
                callback(self)
            except BaseException as exc:  # noqa: BLE001 - the callback is the user's
                LOGGER.exception("exception calling callback for %r", self)
                if isinstance(exc, KeyboardInterrupt):
                    interrupt = exc
        if interrupt and threading.current_thread() is threading.main_thread():
            raise interrupt


class Limits(NamedTuple):
    """Limits of one call; None: unlimited."""

    timeout_s: float | None
    memory_bytes: int | None
    max_crashes: int


class Call:
    """A call in progress: what the host must know, and its future.

    Args:
        number: identifies the call.
        function: a number that calls of the same function share.
        limits: of this call.

    Attributes:
        data: the pickled call, once it is pickled.
        loan: what it refers to in the caller's process; None: nothing.
    """

    __slots__ = (
        "data",
        "function",
        "future",
        "loan",
        "max_crashes",
        "memory_bytes",
        "number",
        "timeout_s",
    )

    def __init__(self, number: int, function: int, limits: Limits) -> None:
        self.number = number
        self.function = function
        self.timeout_s, self.memory_bytes, self.max_crashes = limits
        self.data = b""
        self.loan: Loan | None = None
        self.future = JobFuture()

    def discard(self) -> None:
        """Remove its files and loans: it has ended."""
        spill_files.discard(self.data)
        if self.loan is not None:
            self.loan.end()
