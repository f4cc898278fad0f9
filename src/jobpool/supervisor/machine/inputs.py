"""The machine's inputs: everything that can happen to a supervisor.

The machine is a pure function of these inputs and their times to `commands`; `loop`
feeds it and executes the commands. A slot is named by its number, unique over all pools
of the supervisor. The events of a supervisor's log are others: `core.events`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from jobpool.core.application.app_report import AppReport
from jobpool.core.config.settings import Settings
from jobpool.core.jobs.job import PermitAnswer, PermitAsk
from jobpool.core.jobs.memory_trail import Trail
from jobpool.core.rules.circuit_breaker import Saved
from jobpool.core.rules.run_report import HostReport, StoreReport
from jobpool.sandbox.protocol.messages import Answer, FromChild
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.store.records.jobs import HeldBack, LeaseBatch


class ZygoteLoaded(msgspec.Struct, frozen=True):
    """A pool's zygote has loaded the application."""

    pool: str
    report: AppReport
    reloading: bool = False
    """It is to replace a zygote that still runs."""
    own_import: str = ""
    """Why it could not be forked from another pool's; "": nothing spoke against it."""


class ZygoteLost(msgspec.Struct, frozen=True):
    """A pool's zygote ended, or could not load the application."""

    pool: str
    message: str
    traceback: str = ""
    reloading: bool = False
    """It was to replace a zygote that still runs."""
    killed: bool = False
    """By SIGKILL, not ours: it says nothing about the application."""


class Reload(msgspec.Struct, frozen=True):
    """Reload the application, under these settings."""

    settings: Settings


class KindsPublished(msgspec.Struct, frozen=True):
    """The kinds that supervisors had published when the store was opened."""

    kinds: tuple[str, ...]


class ChildForked(msgspec.Struct, frozen=True):
    """A slot's child exists, is recorded, and may start."""

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
    """A child sent bytes that are no valid message."""

    slot: int
    message: str


class ChildExited(msgspec.Struct, frozen=True, kw_only=True):
    """A child was reaped and nothing of its process tree is left."""

    slot: int
    exit: Exit
    never_begun: Sequence[int] = ()
    """Sequence numbers that it never began: their tickets were not taken, or they were
    sent after its death. It may grow until the event is handled."""
    marked: frozenset[int] | None = None
    """As of `Recalled`."""
    peak_rss_bytes: int = 0
    trail_seq: int = 0
    """The attempt that was watched last: the trail is its own."""
    memory_trail: Trail | None = None
    output: bytes = b""
    stack: str = ""
    processes: Sequence[str] = ()
    """Its descendants just before we killed it."""
    host_oom: bool = False  # the kernel's count of out-of-memory kills rose meanwhile
    fenced: bool = False  # its zygote may have killed it: its leases had run out


class OverMemory(msgspec.Struct, frozen=True):
    """A busy child's tree is over its memory limit, or the soft one, confirmed."""

    slot: int
    seq: int
    """The attempt that was sampled."""
    rss_bytes: int
    soft: bool = False


class OverProcesses(msgspec.Struct, frozen=True):
    """A busy child's tree has more processes and threads than it may have."""

    slot: int
    seq: int
    """The attempt that was sampled."""
    count: int
    """A lower bound."""
    most: int


class AttemptSampled(msgspec.Struct, frozen=True):
    """A busy child's memory or output has changed; for `show` and the like."""

    slot: int
    seq: int
    """The attempt that was sampled."""
    rss_bytes: int
    output: bytes | None
    """The tail of its output; None: unchanged since the last sample."""


class NotIdle(msgspec.Struct, frozen=True):
    """A child without a job is active."""

    slot: int
    activity: str


class Overfull(msgspec.Struct, frozen=True):
    """A child became idle with more memory than any of its attempts was allowed."""

    slot: int


class Recalled(msgspec.Struct, frozen=True):
    """A recall has ended; *seqs* were taken back before the child began them."""

    slot: int
    seqs: tuple[int, ...]
    last_seq: int
    """The last that the recall was for; later ones are not affected."""
    marked: frozenset[int] | None = None
    """Tokens that the slot's marks name as begun; None: that is unknown."""


class Granted(msgspec.Struct, frozen=True):
    """The store answered a `Lease`."""

    wanted: Mapping[str, int]
    batch: LeaseBatch
    held: HeldBack | None = None
    """What quotas hold back, if nothing was granted in a burst."""


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


class Outdated(msgspec.Struct, frozen=True):
    """The store's least format is above ours: we get no leases any more."""


class Settled(msgspec.Struct, frozen=True):
    """The store has answered for settlements; exceptions are named by token."""

    count: int
    large: tuple[int, ...] = ()
    """The large ones, including those that another session's transaction puts off."""
    stale: tuple[int, ...] = ()
    """Refused: superseded."""
    completed: tuple[int, ...] = ()
    """The handler's own transaction had completed them, and that stands."""
    unfinished: tuple[int, ...] = ()
    """The handler had called `complete`, but its transaction was never committed; or
    the arguments of the job fit no supervisor."""
    handed_on: tuple[int, ...] = ()
    """The arguments may fit another supervisor."""


class Stored(msgspec.Struct, frozen=True):
    """The store answered an `Enqueue`."""

    slot: int
    child: int
    answer: Answer


class PermitsAnswered(msgspec.Struct, frozen=True):
    """The store answered a `TakePermits`."""

    asks: Sequence[PermitAsk]
    answers: Sequence[PermitAnswer] | None
    """Theirs, in order; None: it could not answer."""


class CancelAsked(msgspec.Struct, frozen=True):
    """The jobs leased under these tokens are to be canceled."""

    tokens: tuple[int, ...]


class Notified(msgspec.Struct, frozen=True):
    """A wake-up: there may be due jobs."""


class HostSeen(msgspec.Struct, frozen=True, kw_only=True):
    """How the host and the store are: for pools with a size range, and to report."""

    due: Mapping[str, int] = {}
    """Due jobs that nothing holds back, of pools with a range of sizes."""
    oldest_s: Mapping[str, float] = {}
    """For how long the oldest of them has waited, of pools that scale on that."""
    usual_bytes: Mapping[str, int] = {}
    """What attempts were seen to use, of pools that scale on memory."""
    usual_of_kinds: Mapping[tuple[str, str], int] = {}
    """What older attempts were seen to use, by kind and pool, where that is known."""
    host: HostReport
    store: StoreReport = StoreReport()


class HostMemorySeen(msgspec.Struct, frozen=True):
    """What the host has left while attempts run; only while that is little."""

    available_bytes: int
    total_bytes: int
    """Of the host, or what its cgroup allows the supervisor."""
    pressure: float | None = None
    """Share of the last 10 s in which some program waited for memory, in percent."""


class HostKilled(msgspec.Struct, frozen=True):
    """A suspect of this kind, running alone, killed another supervisor or its host."""

    kind: str
    id: int


class BreakersSeen(msgspec.Struct, frozen=True):
    """The circuit breakers in the store."""

    rows: tuple[Saved, ...]
    saves: int
    """How many of our `SaveBreaker` commands it includes."""


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
    | OverMemory
    | OverProcesses
    | AttemptSampled
    | NotIdle
    | Overfull
    | Recalled
    | Granted
    | GrantFailed
    | Entered
    | Renewed
    | Lapsed
    | Outdated
    | Settled
    | Stored
    | PermitsAnswered
    | CancelAsked
    | Notified
    | HostSeen
    | HostMemorySeen
    | HostKilled
    | BreakersSeen
    | Drain
    | Stop
    | Tick
)
