"""The machine's commands: what it wants done; `loop` executes them in order.

A slot is named by its number, as in `inputs`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jobpool.core.application.step_results import WantedResults
from jobpool.core.events.event import Event
from jobpool.core.jobs.flow import AskedFlow
from jobpool.core.jobs.job import (
    NewJob,
    PermitAsk,
    PermitReturn,
    Progress,
    RequestReport,
    Settlement,
    Start,
    Throttle,
)
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.run_report import RunReport
from jobpool.errors import JobpoolError
from jobpool.sandbox.protocol.messages import RunJob, ToChild


class StartZygote(msgspec.Struct, frozen=True):
    """Start a pool's zygote and load the application in it."""

    pool: str


class KillZygote(msgspec.Struct, frozen=True):
    """Kill the zygote that was asked for a slot's child; its loss follows."""

    slot: int
    message: str


class TakeOver(msgspec.Struct, frozen=True):
    """Let the zygote that has reloaded fork for its pool from now on."""

    pool: str


class DropZygote(msgspec.Struct, frozen=True):
    """End the zygote that has reloaded: it is not wanted."""

    pool: str


class Fork(msgspec.Struct, frozen=True):
    """Make a child for a slot; `ChildForked` or `ForkRefused` follows."""

    slot: int


class Assign(msgspec.Struct, frozen=True):
    """Send a child all jobs that one step has for it, with their tickets."""

    slot: int
    frames: list[RunJob]


class Watch(msgspec.Struct, frozen=True):
    """An attempt begins: hold its child's tree to this memory limit."""

    slot: int
    seq: int
    memory_bytes: int
    memory_soft_bytes: int | None = None


class Unwatch(msgspec.Struct, frozen=True):
    """No attempt runs in the slot any more: check that its child is idle."""

    slot: int
    allowed_bytes: int
    """The highest memory limit among the attempts that have ended in it."""


class Send(msgspec.Struct, frozen=True):
    """Send a message to a child."""

    slot: int
    frame: ToChild


class Recall(msgspec.Struct, frozen=True):
    """Take back the jobs that the child has not begun; `Recalled` follows at once."""

    slot: int
    last_seq: int
    """Sequence number of the last job that it was sent."""


class SoftTimeout(msgspec.Struct, frozen=True):
    """Signal a child that its attempt has reached its soft time limit."""

    slot: int


class SoftMemory(msgspec.Struct, frozen=True):
    """Signal a child that its attempt is over its soft memory limit."""

    slot: int


class Dump(msgspec.Struct, frozen=True):
    """Make a child write its Python stacks."""

    slot: int


class Kill(msgspec.Struct, frozen=True):
    """Kill a child's whole process tree; `ChildExited` follows."""

    slot: int


class Settle(msgspec.Struct, frozen=True):
    """Write all settlements that one step has; `Settled` follows."""

    settlements: list[Settlement]


class Record(msgspec.Struct, frozen=True):
    """Write the progress and checkpoint of a running attempt."""

    progress: Progress


class NoteStart(msgspec.Struct, frozen=True):
    """Note that an attempt has begun, for `show` and the like."""

    start: Start


class Clear(msgspec.Struct, frozen=True):
    """A suspect has run for long enough: clear it in the store."""

    id: int
    token: int


class SaveBreaker(msgspec.Struct, frozen=True):
    """Store a kind's circuit breaker."""

    saved: Saved


class Leaving(msgspec.Struct, frozen=True):
    """Note in the store that the supervisor drains or stops."""


SafetyNote = Clear | SaveBreaker | Leaving


class Lease(msgspec.Struct, frozen=True):
    """Ask the store for jobs; `Granted` or `GrantFailed` follows."""

    wanted: Mapping[str, int]
    suspects: bool = True
    alone: bool = False
    """Nothing runs here, so that a suspect may be granted, alone."""
    held: frozenset[str] = frozenset()
    """Kinds that may not begin now."""
    ahead: Mapping[str, int] = {}
    """How many of the wanted have no free slot yet, by pool."""
    slow_s: float = 0.0
    """The answer may come so late."""


class TakePermits(msgspec.Struct, frozen=True):
    """Take permits for running attempts; `PermitsAnswered` follows."""

    asks: list[PermitAsk]


class ReturnPermits(msgspec.Struct, frozen=True):
    """Return permits of running attempts."""

    returns: list[PermitReturn]


class BlockBuckets(msgspec.Struct, frozen=True):
    """Let nobody have permits of these buckets for some time."""

    blocks: list[Throttle]


class ReportRequests(msgspec.Struct, frozen=True):
    """Count requests that running attempts have made, for breakers of quotas."""

    reports: list[RequestReport]
    at_ms: int
    """For the events that come of it."""


class Enqueue(msgspec.Struct, frozen=True):
    """Store a handler's jobs, or read something for it; `Stored` follows."""

    slot: int
    child: int
    ask: int
    jobs: list[NewJob]
    reads: int | None = None
    """Id of the job to read."""
    may_read: bool = False
    """It may see other jobs: the one that holds a key of these, for one."""
    job_id: int = 0
    """The handler's own job."""
    results: WantedResults | None = None
    """Results of other members of its flow to read."""
    flow: AskedFlow | None = None
    """The jobs are the members of this flow, which is to be stored."""


class Report(msgspec.Struct, frozen=True):
    """Write what this supervisor reports of itself, with whatever is written next."""

    report: RunReport


class Observe(msgspec.Struct, frozen=True):
    """Report an event to the observer."""

    event: Event


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """End the supervisor: everything is done, or given up."""

    how: str = ""
    """Drained or stopped, for the log."""
    exit_code: int = 0
    error: JobpoolError | None = None
    """Why it could not start."""
    handed_back: int = 0
    """Attempts that the end interrupted."""
    leases_held: int = 0
    """Leases whose settlements could not be stored."""
    outdated: bool = False
    """It ends because the store's jobs need newer code."""
    took_s: float = 0.0
    """From the first request to end until now."""


Command = (
    StartZygote
    | KillZygote
    | TakeOver
    | DropZygote
    | Fork
    | Assign
    | Watch
    | Unwatch
    | Send
    | Recall
    | SoftTimeout
    | SoftMemory
    | Dump
    | Kill
    | Settle
    | Record
    | NoteStart
    | SafetyNote
    | Lease
    | TakePermits
    | ReturnPermits
    | BlockBuckets
    | ReportRequests
    | Enqueue
    | Report
    | Observe
    | Finish
)
