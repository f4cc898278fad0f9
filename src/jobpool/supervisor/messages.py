"""Events that the supervisor's core takes, and commands that it gives.

The core (`machine`) is a pure function of these events and their times; the
shell (`loop`) turns the world into events and commands into the world. A slot is
named by its number, unique over all pools of the supervisor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from jobpool.core.events import Event
from jobpool.core.handler import AppReport
from jobpool.core.job import NewJob, Progress, Settlement, Start
from jobpool.core.settings import Settings
from jobpool.errors import JobpoolError
from jobpool.sandbox.frames import Answer, FromChild, RunJob, ToChild
from jobpool.sandbox.verdict import Exit
from jobpool.store.records import LeaseBatch
from jobpool.supervisor import cautionmessages as cm
from jobpool.supervisor import watchmessages as wm

# -- events --------------------------------------------------------------------------


class ZygoteLoaded(msgspec.Struct, frozen=True):
    """A pool's zygote has loaded the application."""

    pool: str
    report: AppReport
    reloading: bool = False
    """It is to take over from a zygote that is still there."""


class ZygoteLost(msgspec.Struct, frozen=True):
    """A pool's zygote ended, or could not load the application."""

    pool: str
    message: str
    traceback: str = ""
    reloading: bool = False
    """It was to take over from a zygote that is still there."""
    killed: bool = False
    """By SIGKILL, and not by us: it says nothing about the application."""


class Reload(msgspec.Struct, frozen=True):
    """Load the application anew, under these settings."""

    settings: Settings


class KindsPublished(msgspec.Struct, frozen=True):
    """The kinds that supervisors had published when the store was opened."""

    kinds: tuple[str, ...]


class ChildForked(msgspec.Struct, frozen=True):
    """A slot's child exists, is on record, and has been told to go."""

    slot: int


class ForkRefused(msgspec.Struct, frozen=True):
    """A slot's child could not be made."""

    slot: int
    message: str


class FramesArrived(msgspec.Struct, frozen=True):
    """A child sent messages: all that was read at once, in order."""

    slot: int
    frames: Sequence[FromChild]
    peak_rss_bytes: int = 0
    """Highest resident memory seen since the slot's last `Done`."""


class FrameBroken(msgspec.Struct, frozen=True):
    """A child sent bytes that are no message of ours."""

    slot: int
    message: str


class ChildExited(msgspec.Struct, frozen=True, kw_only=True):
    """A child was reaped and nothing of its process tree is left."""

    slot: int
    exit: Exit
    never_begun: Sequence[int] = ()
    """Sequence numbers that it never began: nobody took their tickets, or
    they were sent after its death. It may grow until the event is handled."""
    marked: frozenset[int] | None = None
    """As of `Recalled`."""
    peak_rss_bytes: int = 0
    output: bytes = b""
    stack: str = ""
    processes: Sequence[str] = ()
    """What was below it when we were about to kill it."""
    host_oom: bool = False  # the kernel's count of out-of-memory kills rose meanwhile
    fenced: bool = False  # its zygote may have killed it: its leases had run out


class Recalled(msgspec.Struct, frozen=True):
    """These sequence numbers were taken back before the child began them."""

    slot: int
    seqs: tuple[int, ...]
    last_seq: int
    """Of what the recall was for; what was sent later is not meant."""
    marked: frozenset[int] | None = None
    """Tokens that the slot's marks name as begun; None: that cannot be told."""


class Granted(msgspec.Struct, frozen=True):
    """The store answered a `Lease`."""

    wanted: Mapping[str, int]
    batch: LeaseBatch


class GrantFailed(msgspec.Struct, frozen=True):
    """The store could not answer a `Lease`; nothing was leased."""


class Entered(msgspec.Struct, frozen=True):
    """The run and its kinds are in the store: jobs may be leased."""


class Renewed(msgspec.Struct, frozen=True):
    """The store has extended our leases, or we know better how long they hold."""

    until_s: float
    """Monotonic time at which they end: that of the request, and the TTL."""
    ttl_s: float
    """For how long they were extended."""


class Lapsed(msgspec.Struct, frozen=True):
    """Our leases had run out: others may have taken what we hold."""


class Settled(msgspec.Struct, frozen=True):
    """Settlements are durable; the tokens of those that were not written are named."""

    count: int
    large: tuple[int, ...] = ()
    """The large ones, with those that somebody's open transaction keeps for later."""
    stale: tuple[int, ...] = ()
    """Refused: superseded."""
    completed: tuple[int, ...] = ()
    """The handler's own transaction had completed them, and that stands."""
    unfinished: tuple[int, ...] = ()
    """The handler had called `complete`, but its transaction was never committed; or
    the arguments of the job fit nobody."""
    handed_on: tuple[int, ...] = ()
    """They may fit somebody else."""


class Stored(msgspec.Struct, frozen=True):
    """The store answered an `Enqueue`."""

    slot: int
    child: int
    answer: Answer


class CancelAsked(msgspec.Struct, frozen=True):
    """Somebody asked to cancel the jobs leased under these tokens."""

    tokens: tuple[int, ...]


class Rung(msgspec.Struct, frozen=True):
    """Somebody says that there may be due jobs."""


class HostSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What the host can give, looked at now and then for pools with a range."""

    due: Mapping[str, int]
    cpu_idle_share: float
    available_bytes: int


class Drain(msgspec.Struct, frozen=True):
    """Finish what runs, start nothing more."""

    reason: str


class Stop(msgspec.Struct, frozen=True):
    """End everything now and hand it back."""

    reason: str


class Tick(msgspec.Struct, frozen=True):
    """A deadline may have passed."""


SupervisorEvent = (
    ZygoteLoaded
    | ZygoteLost
    | Reload
    | KindsPublished
    | ChildForked
    | ForkRefused
    | FramesArrived
    | FrameBroken
    | ChildExited
    | wm.OverMemory
    | wm.OverProcesses
    | wm.Seen
    | wm.Restless
    | wm.Overfull
    | Recalled
    | Granted
    | GrantFailed
    | Entered
    | Renewed
    | Lapsed
    | Settled
    | Stored
    | CancelAsked
    | Rung
    | HostSeen
    | cm.HostKilled
    | cm.BreakersSeen
    | Drain
    | Stop
    | Tick
)

# -- commands ------------------------------------------------------------------------


class StartZygote(msgspec.Struct, frozen=True):
    """Start a pool's zygote and load the application in it."""

    pool: str


class KillZygote(msgspec.Struct, frozen=True):
    """Kill the zygote that was asked for a slot's child; its loss follows."""

    slot: int
    message: str


class TakeOver(msgspec.Struct, frozen=True):
    """Let the zygote that was loaded anew fork for its pool from now on."""

    pool: str


class DropZygote(msgspec.Struct, frozen=True):
    """End the zygote that was loaded anew: it is not wanted."""

    pool: str


class Fork(msgspec.Struct, frozen=True):
    """Make a child for a slot; `ChildForked` or `ForkRefused` follows."""

    slot: int


class Assign(msgspec.Struct, frozen=True):
    """Send jobs to a child, with their tickets: all that one step has for it."""

    slot: int
    frames: list[RunJob]


class Send(msgspec.Struct, frozen=True):
    """Send a message to a child."""

    slot: int
    frame: ToChild


class Recall(msgspec.Struct, frozen=True):
    """Take back what the child has not begun; `Recalled` follows at once."""

    slot: int
    last_seq: int
    """The last that it was sent."""


class SoftTimeout(msgspec.Struct, frozen=True):
    """Tell a child that its attempt's soft time limit has come."""

    slot: int


class SoftMemory(msgspec.Struct, frozen=True):
    """Tell a child that its attempt is over its soft memory limit."""

    slot: int


class Dump(msgspec.Struct, frozen=True):
    """Make a child write its Python stacks."""

    slot: int


class Kill(msgspec.Struct, frozen=True):
    """Kill a child's whole process tree; `ChildExited` follows."""

    slot: int


class Settle(msgspec.Struct, frozen=True):
    """Write the ends of leases, all that one step has; `Settled` follows."""

    settlements: list[Settlement]


class Record(msgspec.Struct, frozen=True):
    """Write progress and checkpoint of a running attempt."""

    progress: Progress


class NoteStart(msgspec.Struct, frozen=True):
    """Note for people that an attempt has begun."""

    start: Start


class Lease(msgspec.Struct, frozen=True):
    """Ask the store for jobs; `Granted` or `GrantFailed` follows."""

    wanted: Mapping[str, int]
    suspects: bool = True
    alone: bool = False
    """Whether a suspect may be granted, and nothing with it: nothing runs here."""
    held: frozenset[str] = frozenset()
    """Kinds of which none is wanted now."""


class Enqueue(msgspec.Struct, frozen=True):
    """Store a handler's jobs, or read one for it; `Stored` follows."""

    slot: int
    child: int
    ask: int
    jobs: list[NewJob]
    reads: int | None = None
    """A job's id."""


class Observe(msgspec.Struct, frozen=True):
    """Something happened that people may want to read."""

    event: Event


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is done, or nothing more is waited for: end the supervisor."""

    how: str = ""
    """Drained or stopped, for people."""
    exit_code: int = 0
    error: JobpoolError | None = None
    """Why it could not start."""
    handed_back: int = 0
    """Attempts that the end interrupted."""
    leases_held: int = 0
    """Leases whose ends could not be stored."""


Command = (
    StartZygote
    | KillZygote
    | TakeOver
    | DropZygote
    | Fork
    | Assign
    | wm.Watch
    | wm.Unwatch
    | Send
    | Recall
    | SoftTimeout
    | SoftMemory
    | Dump
    | Kill
    | Settle
    | Record
    | NoteStart
    | cm.Caution
    | Lease
    | Enqueue
    | Observe
    | Finish
)
