"""The future of one call, and how it moves between the caller's line and the host."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures._base import PENDING, RUNNING
from typing import Any


class JobFuture(Future[Any]):
    """A future that can go back from running to waiting.

    It counts as running once its call is with the host, which gets few more than its
    children can take at once (`concurrent.futures` does the same). What the host could
    not begin soon comes back, and can be canceled again.
    """

    def wait_again(self) -> None:
        """The call has come back, and was never begun."""
        with self._condition:
            if self._state == RUNNING:
                self._state = PENDING


class Call:
    """A call on its way: what the host must know, and whose result it is."""

    __slots__ = (
        "data",
        "future",
        "max_crashes",
        "memory_bytes",
        "number",
        "timeout_s",
    )

    def __init__(
        self,
        number: int,
        data: bytes,
        timeout_s: float | None,
        memory_bytes: int | None,
        max_crashes: int,
    ) -> None:
        self.number = number
        self.data = data
        self.timeout_s = timeout_s
        self.memory_bytes = memory_bytes
        self.max_crashes = max_crashes
        self.future = JobFuture()
