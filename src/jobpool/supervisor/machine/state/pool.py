"""A pool: its slots, its backlog of leased jobs, and how many more it can use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from jobpool.core.config.settings import PoolSettings
from jobpool.core.jobs.job import Settlement
from jobpool.supervisor.machine.state.backpressure import (
    Unwritten,
    is_large,
    size_bytes,
)
from jobpool.supervisor.machine.state.durations import (
    BRIEFEST_S,
    BRISK_S,
    FAST_S,
    Durations,
)
from jobpool.supervisor.machine.state.polling import Polling
from jobpool.supervisor.machine.state.slot import (
    NEVER_S,
    Assigned,
    Slot,
    SlotState,
    Tally,
)

HELD_MAX = 896
"""Most leased jobs beyond the running ones. While the store does not answer, one slot
may begin them all, and its ring of marks must remember each until it is settled."""
HELD_MAX_BYTES = 2**25
"""Most memory of ours that their arguments take, roughly."""
BACKLOG_S = 0.064
"""Work of fast kinds that may wait in the supervisor, for each slot: 32 jobs of 2 ms,
more of faster ones, so that one commit leases many of them."""
RESERVE_S = 0.016
"""Work leased for slots that are free soon, at least one job for each whose attempt is
brisk: a few times what a lease takes, during which they would stand still."""
FIXED = "its size is fixed"
LATE_S = 1.0
"""As long as any leased job waits for a slot."""

_READY = (SlotState.IDLE,)
_ABLE = (SlotState.EMPTY, SlotState.FORKING, SlotState.STARTING, SlotState.IDLE)
_DYING = (SlotState.DUMPING, SlotState.KILLED)


class Pool:
    """The state of one pool.

    Args:
        settings: the operator's.
        first_number: number of its first slot; slots are numbered over all pools.
    """

    def __init__(self, settings: PoolSettings, first_number: int) -> None:
        self.settings = settings
        self.name = settings.name
        self.size = settings.size_min
        spare = 1 if settings.recycle_jobs == 1 else 0
        self.tally = Tally()
        self.slots = [
            Slot(first_number + i, f"{self.name}/{i}", self.name, self.tally)
            for i in range(settings.size_max + spare)
        ]
        self.spare = spare
        """Children kept ready beyond the size, so that a fresh one is available."""
        self.backlog: deque[Assigned] = deque()
        self.free = 0
        """Idle children that nothing is leased for yet, when `capacity` was called."""
        self.begin_by_s = NEVER_S
        """No job in the backlog must have begun earlier than that."""
        self._late_kinds: set[str] = set()
        self._late_until_s = 0.0
        self.heaviest_bytes = 1
        """Roughly the largest arguments of a leased job lately."""
        self.unwritten = Unwritten()
        self.polling = Polling()
        self.asked = 0
        """Leases asked for and not yet answered."""
        self.zygote_up = False
        self.app_version = ""
        """Of the application in its zygote."""
        self.is_reloading = False
        """The application is to be reloaded: its next zygote's children are newer."""
        self.own_import = ""
        """Why its zygote imported the application itself; "": that was not needed."""
        self.zygote_failures = 0
        self.zygote_retry_s: float | None = None
        self.fork_retry_s = 0.0
        """No child is started before then; 0: one may be started now."""
        self.gives_way_s: float | None = None
        """Since when its next child has given way to kills that are due."""
        self.fork_failures = 0
        self.drain_until_s: float | None = None
        self.idle_since_s: float | None = None
        self.wanted = 0
        """The size that it would have if nothing kept it from growing."""
        self.why = FIXED if settings.size_min == settings.size_max else ""
        """Why it has its size."""
        self.grown: deque[tuple[float, int]] = deque()
        """When it last grew, and by how many children."""
        self.durations = Durations()
        """Those of all its kinds together."""
        self._durations_by_kind: dict[str, Durations] = {}

    @property
    def busy(self) -> int:
        """Slots whose child runs an attempt, or is being killed for one."""
        return self.tally.busy

    @property
    def children(self) -> int:
        """Slots that have a child, or have asked for one."""
        return self.tally.children

    def capacity(self, now_s: float) -> int:
        """Return how many more leases the pool can use now or soon."""
        if not self.zygote_up:
            return 0
        # While children fail to start, leave the jobs to other supervisors.
        ready = _READY if self.fork_failures else _ABLE
        able = busy = dying = idle = 0
        for slot in self.slots:  # asked once a turn: one pass
            state = slot.state
            if state in ready:
                able += 1
                idle += state is SlotState.IDLE
            elif state is SlotState.BUSY:
                busy += 1
            elif state in _DYING and slot.queue:
                dying += 1
        free = max(0, min(able, self.size - busy - dying))
        self.free = max(0, min(free, idle) - len(self.backlog))
        room = free - len(self.backlog) - self.asked
        if self.durations.fast:
            backlog = self.size * int(BACKLOG_S / max(self.durations.p95_s, BRIEFEST_S))
            most = busy * self.durations.ahead + backlog
            share = 4  # the children work on while a commit leases this share
        else:
            each = max(1, int(RESERVE_S / max(self.durations.p95_s, FAST_S)))
            brisk, others = self._ends_soon(now_s)
            most = brisk * (1 + each) + int(others)  # one may wait in its child
            share = 2
        most = min(most, HELD_MAX, HELD_MAX_BYTES // self.heaviest_bytes)
        enough = most // share
        if most:
            room += most - sum(len(slot.queue) - 1 for slot in self.slots if slot.queue)
        # One large request rather than many small ones, unless a slot is waiting.
        return room if room >= max(1, enough) or (free and room > 0) else 0

    def _ends_soon(self, now_s: float) -> tuple[int, float]:
        """Return what runs and is about to end.

        Returns:
            How many brisk attempts, and how many of the others probably end while
            something is leased for their slots: each takes long, but there are many.
        """
        brisk, others, last_s = 0, 0.0, 0.0
        for slot in self.slots:
            if slot.state is not SlotState.BUSY:
                continue
            head = slot.queue[0]
            if head.started_s is None:
                continue
            last_s = max(last_s, head.started_s)
            durations = self.durations_of(head.lease.kind)
            if now_s >= head.started_s + durations.late_s:
                continue
            if durations.brisk:
                brisk += 1
            else:
                others += durations.ends_within(RESERVE_S)
        # After that, what waits is handed back (`lasts_from_s`).
        return brisk, others if now_s < last_s + BRISK_S else 0.0

    def lasts_from_s(self) -> float:
        """Return when every slot will be busy for long; `NEVER_S`: not foreseeable.

        Jobs that wait then would not begin soon: they are left to other supervisors.
        """
        begun = [
            slot.queue[0].started_s or 0.0
            for slot in self.slots
            if slot.state is SlotState.BUSY
        ]
        return max(begun) + BRISK_S if len(begun) >= max(self.size, 1) else NEVER_S

    def idle_for_s(self, now_s: float) -> float:
        """Return for how long a slot has been idle at every check."""
        if self.busy >= self.size or self.backlog or self.unwritten.is_much:
            self.idle_since_s = None
            return 0.0
        if self.idle_since_s is None:
            self.idle_since_s = now_s
        return now_s - self.idle_since_s

    def durations_of(self, kind: str) -> Durations:
        """Return a kind's durations."""
        found = self._durations_by_kind.get(kind)
        if found is None:
            found = self._durations_by_kind[kind] = Durations()
        return found

    def put_back(self, jobs: Sequence[Assigned]) -> None:
        """Put jobs that never began back to the front of the backlog, in order."""
        self.backlog.extendleft(reversed(jobs))
        self.begin_by_s = min((self.begin_by_s, *(job.begin_by_s for job in jobs)))

    def was_late(self, kinds: Iterable[str], now_s: float) -> None:
        """Jobs of these kinds could not begin in time: there was no child for them.

        Their kinds are not leased until there is one, or for `LATE_S`: else they would
        be leased and handed back all the time.
        """
        self._late_kinds.update(kinds)
        self._late_until_s = now_s + LATE_S

    def late_kinds(self, now_s: float) -> frozenset[str]:
        """Return the kinds that are not to be leased for that reason."""
        if self._late_until_s <= now_s:
            self._late_kinds.clear()
        return frozenset(self._late_kinds)

    def has_child(self) -> None:
        """A child has become idle."""
        if self._late_kinds:
            self._late_kinds.clear()
            self.polling.hint()

    def weigh(self, size_bytes: int) -> None:
        """Note the size of a leased job's arguments; older sizes fade."""
        before_bytes = self.heaviest_bytes
        self.heaviest_bytes = max(size_bytes, before_bytes - before_bytes // 64, 1)

    def owe(self, kind: str, settlement: Settlement) -> None:
        """Note a settlement that the store has yet to write, if it is large."""
        if is_large(settlement):
            self.unwritten.add(settlement)
            self.durations_of(kind).returned(size_bytes(settlement))

    def took(self, kind: str, durations_s: Sequence[float]) -> None:
        """Note how long attempts took, one after another."""
        self.durations.took(durations_s)
        self.durations_of(kind).took(durations_s)
