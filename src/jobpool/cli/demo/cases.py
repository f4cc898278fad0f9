"""Which hostile handlers the demo runs, their limits, and what must become of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from jobpool.cli.demo import hostile
from jobpool.core.job import JobState
from jobpool.core.outcome import Outcome

MEMORY = "256MiB"
_SOON = ["100ms"]
_RETRY = {
    "crashed": _SOON,
    "out_of_memory": _SOON,
    "timed_out": _SOON,
    "RecursionError": _SOON,
}
"""The usual waits are made for night shifts, not for spectators."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One hostile handler."""

    kind: str
    pool: str
    does: str
    """In a few words, for the summary."""
    held: str = ""
    """If it may succeed: what was contained all the same."""
    function: Callable[..., Any]
    arguments: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    """Of its declaration, beside the retry rules that all share."""
    state: JobState
    """Where its job must end."""
    outcome: Outcome
    """How each of its attempts must end."""
    failures: int = 0
    """Attempts that must have been spent."""

    @property
    def declaration(self) -> dict[str, Any]:
        """The options of its decorator."""
        return {"kind": self.kind, "retry": _RETRY, **self.options}


CASES = (
    Case(
        kind="hostile.null_pointer",
        pool="cpu",
        does="reads address 0 through ctypes",
        function=hostile.null_pointer,
        state=JobState.QUARANTINED,
        outcome=Outcome.CRASHED,
        failures=3,
    ),
    Case(
        kind="hostile.regex",
        pool="cpu",
        does="backtracks in C, holding the GIL",
        function=hostile.regex,
        arguments={"text": "a" * 64},
        options={"timeout": "2s", "max_attempts": 2},
        state=JobState.DEAD,
        outcome=Outcome.TIMED_OUT,
        failures=2,
    ),
    Case(
        kind="hostile.daemons",
        pool="io",
        does="leaves 6 daemons (setsid, double fork)",
        function=hostile.daemons,
        arguments={"count": 6},
        held="its daemons are ended",
        state=JobState.SUCCEEDED,
        outcome=Outcome.SUCCEEDED,
    ),
    Case(
        kind="hostile.bomb",
        pool="cpu",
        does="unpacks a 16 GiB bomb at once",
        function=hostile.bomb,
        arguments={"path": hostile.BOMB},
        options={"memory": MEMORY},
        state=JobState.QUARANTINED,
        outcome=Outcome.OUT_OF_MEMORY,
        failures=3,
    ),
    Case(
        kind="hostile.deaf",
        pool="io",
        does="ignores SIGTERM and sleeps",
        function=hostile.deaf,
        options={"timeout": "1s", "max_attempts": 2},
        state=JobState.DEAD,
        outcome=Outcome.TIMED_OUT,
        failures=2,
    ),
    Case(
        kind="hostile.exit_zero",
        pool="io",
        does="calls os._exit(0)",
        function=hostile.exit_zero,
        state=JobState.QUARANTINED,
        outcome=Outcome.CRASHED,
        failures=3,
    ),
    Case(
        kind="hostile.noise",
        pool="io",
        does="prints 50 MB",
        function=hostile.noise,
        arguments={"megabytes": 50},
        held="its output is capped",
        state=JobState.SUCCEEDED,
        outcome=Outcome.SUCCEEDED,
    ),
    Case(
        kind="hostile.recursion",
        pool="cpu",
        does="calls itself without end",
        function=hostile.recursion,
        options={"max_attempts": 2},
        state=JobState.DEAD,
        outcome=Outcome.FAILED,
        failures=2,
    ),
)
BY_KIND: Mapping[str, Case] = {case.kind: case for case in CASES}
