"""A slot: room for one child. Its states, and what each event means in each.

`ACTIONS` is total over states and events. A cell names the method of
`starting.Starting`, `running.Running`, `progress.ProgressReports`, `permits.Permits`,
`killing.Killing` or `idle.IdleChildren` that handles it. `ignore` and `impossible` are
cells like any other, so that a test can walk the whole table.

    EMPTY -> FORKING -> STARTING -> IDLE <-> BUSY
                                     |        |
                                 RETIRING  DUMPING -> KILLED
    and from each of them, by EXITED, back to EMPTY
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from jobpool.core.application.reports import Report
from jobpool.core.jobs.job import Lease
from jobpool.core.jobs.trace import TraceContext
from jobpool.core.rules.limits import Effective
from jobpool.core.rules.policy import Policy
from jobpool.sandbox.protocol.messages import (
    Ask,
    AskPermit,
    Beat,
    BlockBucket,
    Done,
    Ready,
    RequestEnded,
    ReturnPermit,
    StartFailed,
)
from jobpool.sandbox.protocol.verdict import Kill

NEVER_S = float("inf")
IGNORE = "ignore"


class SlotState(StrEnum):
    """The state of a slot."""

    EMPTY = "empty"
    FORKING = "forking"
    """The zygote was asked for a child."""
    STARTING = "starting"
    """The child exists and sets itself up."""
    IDLE = "idle"
    BUSY = "busy"
    DUMPING = "dumping"
    """It will be killed; first it may write its stacks."""
    KILLED = "killed"
    RETIRING = "retiring"
    """It was asked to end by itself."""


class SlotEvent(StrEnum):
    """What can happen to a slot."""

    FORKED = "forked"
    FORK_FAILED = "fork_failed"
    READY = "ready"
    START_FAILED = "start_failed"
    DONE = "done"
    BEAT = "beat"
    ASK = "ask"
    PERMIT = "permit"
    """It takes a permit, returns one, or says that nobody is to have any, or how a
    request ended."""
    GARBAGE = "garbage"
    """The child broke the protocol."""
    EXITED = "exited"
    OVER_MEMORY = "over_memory"
    SAMPLED = "sampled"
    """Its memory or output has changed."""
    OVER_PROCESSES = "over_processes"
    """It has more processes and threads than it may have."""
    SOFT_MEMORY = "soft_memory"
    """Over its soft limit only."""
    NOT_IDLE = "not_idle"
    """It has no job, and is active all the same."""
    OVERFULL = "overfull"
    """It became idle with more memory than any of its attempts was allowed."""
    CANCEL = "cancel"
    DEADLINE = "deadline"
    STOP = "stop"
    """The supervisor ends now."""


_S, _E = SlotState, SlotEvent
FRAME_EVENTS: Mapping[type, SlotEvent] = {
    Ready: _E.READY,
    StartFailed: _E.START_FAILED,
    Done: _E.DONE,
    Beat: _E.BEAT,
    Ask: _E.ASK,
    AskPermit: _E.PERMIT,
    ReturnPermit: _E.PERMIT,
    BlockBucket: _E.PERMIT,
    RequestEnded: _E.PERMIT,
}
"""The event of each message that a child sends."""
_UNEXPECTED = {
    _E.FORKED: "impossible",
    _E.FORK_FAILED: "impossible",
    _E.READY: "garbage",
    _E.START_FAILED: "garbage",
    _E.DONE: "garbage",
    _E.BEAT: IGNORE,
    _E.ASK: IGNORE,
    _E.PERMIT: IGNORE,
    _E.GARBAGE: "garbage",
    _E.EXITED: "impossible",
    _E.OVER_MEMORY: IGNORE,
    _E.OVER_PROCESSES: IGNORE,
    _E.SAMPLED: IGNORE,
    _E.SOFT_MEMORY: IGNORE,
    _E.NOT_IDLE: IGNORE,
    _E.OVERFULL: IGNORE,
    _E.CANCEL: IGNORE,
    _E.DEADLINE: IGNORE,
    _E.STOP: IGNORE,
}
_DYING = {
    **_UNEXPECTED,
    _E.READY: IGNORE,
    _E.START_FAILED: IGNORE,
    _E.DONE: "late_done",
    _E.GARBAGE: IGNORE,
    _E.EXITED: "died",
}
_WITHOUT_CHILD = {
    **dict.fromkeys(_E, "impossible"),
    _E.OVER_MEMORY: IGNORE,
    _E.OVER_PROCESSES: IGNORE,
    _E.SAMPLED: IGNORE,
    _E.SOFT_MEMORY: IGNORE,
    _E.NOT_IDLE: IGNORE,
    _E.OVERFULL: IGNORE,
    _E.CANCEL: IGNORE,
    _E.DEADLINE: IGNORE,
    _E.STOP: IGNORE,
}
ACTIONS: Mapping[SlotState, Mapping[SlotEvent, str]] = {
    _S.EMPTY: _WITHOUT_CHILD,
    _S.FORKING: {
        **_WITHOUT_CHILD,
        _E.FORKED: "forked",
        _E.FORK_FAILED: "fork_failed",
        _E.DEADLINE: "fork_late",
        _E.STOP: "stop_forking",
    },
    _S.STARTING: {
        **_UNEXPECTED,
        _E.READY: "ready",
        _E.START_FAILED: "start_failed",
        _E.EXITED: "died_starting",
        _E.DEADLINE: "start_late",
        _E.STOP: "stop_starting",
    },
    _S.IDLE: {
        **_UNEXPECTED,
        _E.EXITED: "died_idle",
        _E.NOT_IDLE: "not_idle",
        _E.OVERFULL: "retire",
        _E.DEADLINE: "aged",
        _E.STOP: "retire",
    },
    _S.BUSY: {
        **_UNEXPECTED,
        _E.DONE: "done",
        _E.BEAT: "beat",
        _E.ASK: "ask",
        _E.PERMIT: "permit",
        _E.EXITED: "died",
        _E.OVER_MEMORY: "over_memory",
        _E.OVER_PROCESSES: "over_processes",
        _E.SAMPLED: "sampled",
        _E.SOFT_MEMORY: "soft_memory",
        _E.CANCEL: "cancel",
        _E.DEADLINE: "due",
        _E.STOP: "interrupt",
    },
    _S.DUMPING: {**_DYING, _E.DEADLINE: "kill_now", _E.STOP: "kill_now"},
    _S.KILLED: {**_DYING, _E.DEADLINE: "stuck"},
    _S.RETIRING: {
        **_UNEXPECTED,
        _E.EXITED: "retired",
        _E.NOT_IDLE: "not_idle",
        _E.DEADLINE: "retire_late",
        _E.STOP: "kill_now",
    },
}


class Assigned(msgspec.Struct):
    """A leased job, from its grant to its settlement."""

    lease: Lease
    policy: Policy
    limits: Effective
    leased_s: float
    """Monotonic time of the grant."""
    expires_s: float = NEVER_S
    """When it must have begun; monotonic time, plus what the host has slept."""
    slept_s: float = 0.0
    """How long this host had slept at the grant."""
    epoch: int = 0
    """The step's, when it was asked for."""
    begin_by_s: float = NEVER_S
    """A rate counts it as begun by then: it may not begin later; as `expires_s`."""
    seq: int = 0
    sent_s: float = NEVER_S
    """Monotonic time at which it was sent to its child."""
    started_s: float | None = None
    """Monotonic time at which it became its child's first job; None: not yet."""
    soft_s: float = NEVER_S
    """When the soft time limit is signalled, or signalled again."""
    begun: bool = False
    """Its ticket is known to have been taken: a recall did not return it."""
    doubted: bool = False
    """It was found without its ticket and without its mark, once."""
    soft_memory_reported: bool = False
    noted: bool = False
    dumped: bool = False
    """Its stacks were written shortly before its time limit."""
    beat_s: float = 0.0
    """Monotonic time of the last sign of life."""
    written_s: float = -NEVER_S
    """Monotonic time of the last write; the first checkpoint goes at once."""
    written: bytes | None = None
    """The progress that was written last."""
    progress: bytes | None = None
    """Not yet written."""
    rss_bytes: int | None = None
    """Its tree's, not yet written."""
    output: bytes | None = None
    """The tail of its output, not yet written."""
    report_s: float = NEVER_S
    """When that is written; the checkpoint has a time of its own."""
    checkpoint: bytes | None = None
    """Not yet written."""
    trace: TraceContext | None = None
    """Of its attempt, once it is sent to its child; None: it is in no trace."""
    reports: Sequence[Report] = ()
    """What an error tracker in its child has left to be sent."""

    @property
    def trace_id(self) -> str | None:
        """The trace that it is in; None: it is in none."""
        return None if self.trace is None else self.trace.trace_id


@dataclass(slots=True)
class Tally:
    """What is counted of a pool's slots as they change, by themselves.

    Between two jobs of a slot, a few questions are asked about all slots of its pool.
    Were each answered by a look at every slot, what a job costs would grow with their
    number.
    """

    children: int = 0
    """Slots that have a child, or have asked for one."""
    busy: int = 0
    """Slots whose child was sent a job that has not ended."""
    changed: dict[int, Slot] = field(default_factory=dict)
    """Slots whose queue has changed, by number, until `MemoryGate` has looked."""


@dataclass(slots=True)
class Slot:
    """One slot and its child, if it has one.

    Only its own methods change its state and its queue: they are counted.
    """

    number: int
    name: str
    pool: str
    tally: Tally = field(default_factory=Tally, repr=False)
    """That of its pool."""
    state: SlotState = SlotState.EMPTY
    child: int = 0
    """Counts the children of this slot; identifies the present one."""
    app_version: str = ""
    """Of the application in the present child, or in the last one."""
    born_s: float = 0.0
    base_rss_bytes: int = 0
    left_bytes: int = 0
    """Memory left behind by its attempts so far, as it reports itself."""
    allowed_bytes: int = 0
    """The highest memory limit among its attempts so far."""
    jobs: int = 0
    cpu_s: float = 0.0
    """CPU time used by the attempts that have ended in the child."""
    seq: int = 0
    ended_token: int = 0
    """Token of the last attempt that has ended in the child; 0: none has."""
    queue: Sequence[Assigned] = field(init=False)
    """What was sent to the child; the first job runs, the others were sent ahead."""
    _queue: deque[Assigned] = field(init=False, repr=False)
    """The same, for those who change it."""
    killed: Kill | None = None
    killed_seq: int = 0
    """The attempt that the kill was decided for; 0: none was running."""
    dones: dict[int, Done] = field(default_factory=dict)
    """Ends that the child reported after its kill was decided, by sequence number."""
    deadline_s: float = NEVER_S
    start_error: str = ""
    asking: int = 0
    """The child's requests that the store has not answered."""
    idled_s: float = 0.0
    """For how long, in a row, it has had jobs and begun none of them."""
    recalling: bool = False
    """A recall is under way."""
    recall_s: float = NEVER_S
    """When the jobs behind the running attempt are recalled, or recalled again."""
    worn: bool = False
    """The child has used up its jobs, time or memory: it is to be replaced."""

    def __post_init__(self) -> None:
        self.queue = self._queue = deque()

    def become(self, state: SlotState) -> None:
        """Change its state."""
        had_child, has_child = self.state is not _S.EMPTY, state is not _S.EMPTY
        self.tally.children += has_child - had_child
        self.state = state

    def add(self, jobs: Iterable[Assigned]) -> None:
        """Add jobs that its child is sent."""
        was_busy = bool(self._queue)
        self._queue.extend(jobs)
        self._changed(was_busy=was_busy)

    def ended(self) -> Assigned:
        """Take the first job out: it has ended."""
        job = self._queue.popleft()
        self._changed(was_busy=True)
        return job

    def take_back(self, jobs: Iterable[Assigned]) -> None:
        """Take jobs out that its child can never begin."""
        was_busy = bool(self._queue)
        for job in jobs:
            self._queue.remove(job)
        self._changed(was_busy=was_busy)

    def clear(self) -> None:
        """Take all jobs out."""
        was_busy = bool(self._queue)
        self._queue.clear()
        self._changed(was_busy=was_busy)

    def _changed(self, *, was_busy: bool) -> None:
        self.tally.busy += bool(self._queue) - was_busy
        self.tally.changed[self.number] = self


def empty(slot: Slot) -> None:
    """The slot has no child any more."""
    slot.become(SlotState.EMPTY)
    slot.clear()
    slot.killed = None
    slot.killed_seq = 0
    slot.dones.clear()
    slot.recalling = False
    slot.asking = 0
    slot.deadline_s = NEVER_S
