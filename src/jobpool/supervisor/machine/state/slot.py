"""A slot: room for one child. Its states, and what each event means in each.

`ACTIONS` is total over states and events. A cell names the method of
`starts.Starting`, `running.Running`, `beats.ProgressReports`, `killing.Killing` or
`resting.IdleChildren` that handles it; `ignore` and
`impossible` are cells like any other, so that a test can walk the whole table.

    EMPTY -> FORKING -> STARTING -> IDLE <-> BUSY
                                     |        |
                                 RETIRING  DUMPING -> KILLED
    and from each of them, by EXITED, back to EMPTY
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.limits import Effective
from jobpool.core.rules.policy import Policy
from jobpool.sandbox.protocol.messages import Ask, Beat, Done, Ready, StartFailed
from jobpool.sandbox.protocol.verdict import Kill

NEVER_S = float("inf")
IGNORE = "ignore"


class SlotState(StrEnum):
    """Where a slot stands."""

    EMPTY = "empty"
    FORKING = "forking"
    """The zygote was asked for a child."""
    STARTING = "starting"
    """The child exists and sets itself up."""
    IDLE = "idle"
    BUSY = "busy"
    DUMPING = "dumping"
    """It will be killed; it may write its stacks first."""
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
    GARBAGE = "garbage"
    """The child sent what no child of ours sends."""
    EXITED = "exited"
    OVER_MEMORY = "over_memory"
    SEEN = "seen"
    """It shows something new of itself."""
    OVER_PROCESSES = "over_processes"
    """It has more processes and threads than it may."""
    SOFT_MEMORY = "soft_memory"
    """Over its soft limit only."""
    RESTLESS = "restless"
    """Without a job, it does what no child at rest does."""
    OVERFULL = "overfull"
    """It came to rest with more memory than any of its attempts might have."""
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
}
"""What a child's message is in the table."""
_UNEXPECTED = {
    _E.FORKED: "impossible",
    _E.FORK_FAILED: "impossible",
    _E.READY: "garbage",
    _E.START_FAILED: "garbage",
    _E.DONE: "garbage",
    _E.BEAT: IGNORE,
    _E.ASK: IGNORE,
    _E.GARBAGE: "garbage",
    _E.EXITED: "impossible",
    _E.OVER_MEMORY: IGNORE,
    _E.OVER_PROCESSES: IGNORE,
    _E.SEEN: IGNORE,
    _E.SOFT_MEMORY: IGNORE,
    _E.RESTLESS: IGNORE,
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
    _E.SEEN: IGNORE,
    _E.SOFT_MEMORY: IGNORE,
    _E.RESTLESS: IGNORE,
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
        _E.RESTLESS: "restless",
        _E.OVERFULL: "retire",
        _E.DEADLINE: "aged",
        _E.STOP: "retire",
    },
    _S.BUSY: {
        **_UNEXPECTED,
        _E.DONE: "done",
        _E.BEAT: "beat",
        _E.ASK: "ask",
        _E.EXITED: "died",
        _E.OVER_MEMORY: "over_memory",
        _E.OVER_PROCESSES: "over_processes",
        _E.SEEN: "seen",
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
        _E.RESTLESS: "restless",
        _E.DEADLINE: "retire_late",
        _E.STOP: "kill_now",
    },
}


class Assigned(msgspec.Struct):
    """A leased job in a supervisor's hands."""

    lease: Lease
    policy: Policy
    limits: Effective
    leased_s: float
    """Monotonic time of the grant."""
    expires_s: float = NEVER_S
    """When it must have begun, in the same time and what the host has slept."""
    slept_s: float = 0.0
    """How long this host had slept until then."""
    epoch: int = 0
    """The desk's, when it was asked for."""
    seq: int = 0
    sent_s: float = NEVER_S
    """Monotonic time at which it was sent to its child."""
    started_s: float | None = None
    """Monotonic time at which it became its child's first; None: still behind."""
    soft_s: float = NEVER_S
    """When the soft time limit is signalled, or signalled again."""
    begun: bool = False
    """Its ticket is known to be taken: a recall did not bring it back."""
    doubted: bool = False
    """It was seen without its ticket and without its mark, once."""
    soft_memory_said: bool = False
    noted: bool = False
    dumped: bool = False
    """Its stacks are on record, as they were shortly before its time limit."""
    beat_s: float = 0.0
    """Monotonic time of the last sign of life."""
    written_s: float = -NEVER_S
    """Monotonic time of the last write; the first checkpoint goes at once."""
    written: bytes | None = None
    """The progress that was last written."""
    progress: bytes | None = None
    """Not yet written."""
    rss_bytes: int | None = None
    """Of its tree, not yet written."""
    output: bytes | None = None
    """The tail of what it has written itself, not yet stored."""
    report_s: float = NEVER_S
    """When what is not yet written is, but for the checkpoint."""
    checkpoint: bytes | None = None
    """Not yet written."""


@dataclass(slots=True)
class Slot:
    """One slot and, while it has one, its child."""

    number: int
    name: str
    pool: str
    state: SlotState = SlotState.EMPTY
    child: int = 0
    """Counts the children that the slot has had; names the present one."""
    born_s: float = 0.0
    base_rss_bytes: int = 0
    left_bytes: int = 0
    """What its attempts so far have left of memory, as it says itself."""
    allowed_bytes: int = 0
    """The highest memory limit among them."""
    jobs: int = 0
    cpu_s: float = 0.0
    """What the child's attempts that have ended used of the CPU."""
    seq: int = 0
    ended_token: int = 0
    """Of the last attempt that has ended in the child; 0: none has."""
    queue: deque[Assigned] = field(default_factory=deque)
    """What was sent to the child; the first is running, the rest is sent ahead."""
    killed: Kill | None = None
    killed_seq: int = 0
    """The attempt that the kill was decided for; 0: none was running."""
    dones: dict[int, Done] = field(default_factory=dict)
    """Ends that the child reported after its kill was decided, by number."""
    deadline_s: float = NEVER_S
    start_error: str = ""
    asking: int = 0
    """Requests of the child's that are with the store."""
    idled_s: float = 0.0
    """How long it has been sent jobs, in a row, and has begun none of them."""
    recalling: bool = False
    """A recall is under way."""
    recall_s: float = NEVER_S
    """When what is behind the running attempt is recalled, or recalled again."""
    worn: bool = False
    """The child has had its share of jobs, time or memory: it is to be replaced."""


def empty(slot: Slot) -> None:
    """The slot has no child any more."""
    slot.state = SlotState.EMPTY
    slot.queue.clear()
    slot.killed = None
    slot.killed_seq = 0
    slot.dones.clear()
    slot.recalling = False
    slot.asking = 0
    slot.deadline_s = NEVER_S
