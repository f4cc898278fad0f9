"""Which hostile handlers the demo runs, their limits, and what must become of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from jobpool.cli.demo import handlers
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome

HOSTILE = "hostile."
"""Begins the kinds of hostile jobs."""
_SOON = ["100ms"]
_RETRY = dict.fromkeys(
    ("crashed", "out_of_memory", "timed_out", "RecursionError"), _SOON
)
"""The usual waits are made for night shifts, not for spectators."""


class End(NamedTuple):
    """How a job must end."""

    state: JobState
    outcome: Outcome
    """Of each of its attempts."""
    failures: int
    """Attempts that must have been spent."""


_CRASHED = End(JobState.QUARANTINED, Outcome.CRASHED, 3)
_OUT_OF_MEMORY = End(JobState.QUARANTINED, Outcome.OUT_OF_MEMORY, 3)
_TIMED_OUT = End(JobState.DEAD, Outcome.TIMED_OUT, 2)
_FAILED = End(JobState.DEAD, Outcome.FAILED, 2)
_SUCCEEDED = End(JobState.SUCCEEDED, Outcome.SUCCEEDED, 0)


class Case(msgspec.Struct, frozen=True):
    """One hostile handler."""

    function: Callable[..., Any]
    pool: str
    does: str
    """In a few words, for the summary."""
    end: End
    held: str = ""
    """If it may succeed: what was contained all the same."""
    arguments: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    """Of its declaration, beside the retry rules that all share."""

    @property
    def kind(self) -> str:
        """The kind of its jobs."""
        return f"{HOSTILE}{self.function.__name__}"

    @property
    def declaration(self) -> dict[str, Any]:
        """The options of its decorator."""
        return {"kind": self.kind, "retry": _RETRY, **self.options}


CASES = (
    Case(handlers.null_pointer, "cpu", "reads address 0 through ctypes", _CRASHED),
    Case(
        handlers.regex,
        "cpu",
        "backtracks in C, holding the GIL",
        _TIMED_OUT,
        arguments={"text": "a" * 64},
        options={"timeout": "1s", "max_attempts": 2},
    ),
    Case(
        handlers.daemons,
        "io",
        "leaves 6 daemons (setsid, double fork)",
        _SUCCEEDED,
        held="its daemons are ended",
        arguments={"count": 6},
    ),
    Case(
        handlers.bomb,
        "cpu",
        "unpacks a 16 GiB bomb at once",
        _OUT_OF_MEMORY,
        arguments={"path": handlers.BOMB},
        options={"memory": "256MiB"},
    ),
    Case(
        handlers.deaf,
        "io",
        "ignores SIGTERM and sleeps",
        _TIMED_OUT,
        options={"timeout": "1s", "max_attempts": 2},
    ),
    Case(handlers.exit_zero, "io", "calls os._exit(0)", _CRASHED),
    Case(
        handlers.noise,
        "io",
        "prints 50 MB",
        _SUCCEEDED,
        held="its output is capped",
        arguments={"megabytes": 50},
    ),
    Case(
        handlers.recursion,
        "cpu",
        "calls itself without end",
        _FAILED,
        options={"max_attempts": 2},
    ),
)
BY_KIND: Mapping[str, Case] = {case.kind: case for case in CASES}
