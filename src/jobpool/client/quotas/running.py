"""The call that runs in this process, as its quotas see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec

from jobpool.client.quotas.counted import CountedArguments
from jobpool.errors import UsageError


class RunningCall:
    """A call of a handler or a hook.

    Args:
        owner: the quotas of its application.
        kind: its kind.
        held: names of the quotas that it has permits of from its start on.
        counted: reads its arguments; None: it has none that count.
        payload: the arguments, decoded.
    """

    def __init__(
        self,
        owner: object,
        kind: str,
        held: frozenset[str] = frozenset(),
        counted: CountedArguments | None = None,
        payload: bytes = b"{}",
    ) -> None:
        self.owner = owner
        self.kind = kind
        self.held = held
        self._counted = counted
        self._payload = payload

    def value(self, path: str) -> str:
        """Return what an argument counts as.

        Raises:
            UsageError: it has no such argument, or it cannot be counted by.
        """
        if self._counted is None:
            raise UsageError(f"{self.kind} has no argument to count by")
        return self._counted.value(path, self._arguments)

    @cached_property
    def _arguments(self) -> Mapping[str, Any]:
        arguments: dict[str, Any] = msgspec.json.decode(self._payload)
        return arguments


class _State:
    """The process's state; a class, so that it is changed without ``global``."""

    call: RunningCall | None = None


def running_call() -> RunningCall | None:
    """Return the call that runs here; None: none does, or a test calls a function."""
    return _State.call


@contextmanager
def entered(call: RunningCall) -> Iterator[None]:
    """Let it be the running call in the block."""
    outer, _State.call = _State.call, call
    try:
        yield
    finally:
        _State.call = outer
