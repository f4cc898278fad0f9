"""Messages between the caller's process and its host; framed as the sandbox's are.

Pickles in them are opaque bytes. The caller numbers the tasks.
"""

from __future__ import annotations

import msgspec

from jobpool.core.jobs.job import Evidence

FRAME_BYTES = 4 * 2**20
"""A batch is split at this size, well below the longest frame."""


class Setup(msgspec.Struct, tag="setup", array_like=True):
    """The caller's first message: how to run its calls, and who it is."""

    caller_pid: int
    caller_start_time: int
    """Clock ticks since boot."""
    workers: int
    jobs_per_child: int | None
    directories: tuple[str, ...]
    """Private directories, which the host removes at the end."""
    sys_path: list[str]
    working_directory: str
    initializer: bytes | None
    """A pickled call."""
    authkeys: dict[str, bytes] = {}
    """The keys that its managers ask for, by the module that needs them."""


class Task(msgspec.Struct, array_like=True, gc=False):
    """A call to make."""

    number: int
    call: bytes
    timeout_s: float | None
    memory_bytes: int | None
    max_crashes: int
    function: int
    """Calls with the same number call the same function, as far as we know."""


class Submit(msgspec.Struct, tag="submit", array_like=True):
    """Make these calls."""

    tasks: list[Task]


class Recall(msgspec.Struct, tag="recall", array_like=True):
    """Give back the calls that no child has been given yet."""


class Hello(msgspec.Struct, tag="hello", array_like=True):
    """The host's first message: who it is."""

    pid: int
    start_time: int
    """Clock ticks since boot."""


class Returned(msgspec.Struct, tag="returned", array_like=True):
    """Calls that ended, each with a value or an exception."""

    results: list[tuple[int, bytes]]


class Died(msgspec.Struct, tag="died", array_like=True):
    """A call whose process died, and that is not made again."""

    number: int
    outcome: str
    attempts: int
    evidence: Evidence


class Recalled(msgspec.Struct, tag="recalled", array_like=True):
    """The answer to `Recall`: these calls have not begun, and will not."""

    numbers: list[int]


class Output(msgspec.Struct, tag="output", array_like=True):
    """The output of jobs."""

    text: str


class Broken(msgspec.Struct, tag="broken", array_like=True):
    """The host cannot go on, and ends next."""

    reason: str


ToHost = Setup | Submit | Recall
FromHost = Hello | Returned | Died | Recalled | Output | Broken
