"""Looks at the memory of children, the more often the nearer to their limit.

Only children that have run an attempt are looked at: while they run one, and more
seldom while they say that they have none (`stillness`: whether that is so). Resident
memory is the trigger; before
a child is called over its limit, the figure is confirmed without what it merely
shares or maps (`Confirmation`). After that it is looked at until it is gone, for the
evidence: even dying takes a while. A soft limit is told now and again for as
long as it is passed: the child may not have heard. What grows with the number of a
child's threads and processes is measured the more seldom the longer it takes: none of
them may take the supervisor from the others. On the way the mark file is cut to its
size: a handler could fill the disk with it. And its processes are counted when there
can be more of them (`treesize`).

At rest the highest limit among a child's attempts counts: what one of them has left is
no fault of the last one. And only what grows at rest is somebody's doing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from jobpool.core.config.settings import PoolSettings
from jobpool.core.isolation.cgroups import PROCESSES_COUNTED_MAX
from jobpool.core.units import show_size
from jobpool.sandbox.handles.child import ChildProcess
from jobpool.sandbox.metering.confirmation import Confirmation
from jobpool.sandbox.metering.idleness import Idleness
from jobpool.sandbox.metering.sampling import next_sample_s
from jobpool.sandbox.metering.tree_memory import TreeMemory
from jobpool.sandbox.metering.tree_size import COUNT_AGAIN_S, TreeSize, host_tasks
from jobpool.sandbox.runs.marks import trim_marks
from jobpool.sandbox.system import reserve_fds
from jobpool.sandbox.system.procfs import EXHAUSTED
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import SOFT_AGAIN_S

BLIND_S = 0.1
"""When nothing can be seen, for want of memory or of any descriptor on the whole host,
it is looked again after it."""

REST_LOOK_S = 2.0
"""A child at rest is looked at so often, all of them in one turn of the loop."""
OUTPUT_KEEP_BYTES = 64 * 1024
GROWTH_BYTES = 16 * 2**20
"""A child at rest may grow so much: its last attempt is being cleared away."""
SHOW_EVERY_S = 1.0
"""So often people are told what an attempt shows of itself, if that has changed."""
OUTPUT_SHOWN_BYTES = 8 * 1024
RSS_STEP_BYTES = 2**20
RSS_STEP_SHARE = 0.05
"""A smaller change of its memory is none."""
CROWD = 500
"""Of more processes that still grow the number comes first: each step is one look."""
NEAR_SHARE = 0.5
"""Who has so much of its limit is near it."""


@dataclass(slots=True)
class Watched:
    """One slot's child."""

    process: ChildProcess
    output_max_bytes: int
    processes_max: int
    """Processes and threads; where a cgroup bounds them, they are never more."""
    stillness: Idleness
    tree: TreeMemory
    confirming: Confirmation
    size: TreeSize
    limit_bytes: int = 0
    """The attempt's; at rest, the highest among the child's."""
    soft_bytes: int | None = None
    soft_s: float = 0.0
    """When the soft limit may be told, or told again."""
    peak_bytes: int = 0
    seen_bytes: int = 0
    """At the last look."""
    rested_bytes: int = 0
    """Of the child alone, when it came to rest."""
    look_s: float = 0.0
    seq: int = 0
    """The attempt that is being watched."""
    show_s: float = 0.0
    """When it is looked for something to show."""
    shown_rss_bytes: int = 0
    shown_output_bytes: int = 0
    """How much it had written then."""
    active: bool = False
    """It is looked at."""
    resting: bool = False
    """It says that it has no job."""
    told: bool = False
    """It has been called over a limit."""


class Watch:
    """The memory watch over all slots.

    Args:
        tell: told of a slot whose attempt is over a limit or shows something new, or
            whose child does not rest when it should.
    """

    def __init__(
        self,
        tell: Callable[
            [
                inp.OverMemory
                | inp.OverProcesses
                | inp.Seen
                | inp.Restless
                | inp.Overfull
            ],
            None,
        ],
    ) -> None:
        self._tell = tell
        self._watched: dict[int, Watched] = {}
        self._looks: list[tuple[float, int]] = []

    def next_s(self) -> float:
        """Return the monotonic time of the next look."""
        return self._looks[0][0] if self._looks else float("inf")

    def adopt(self, number: int, process: ChildProcess, pool: PoolSettings) -> None:
        """A slot of a pool has a new child."""
        reserve_fds.keep()
        stillness, tree = Idleness(process.job_pid), TreeMemory(process.job_pid)
        self._watched[number] = Watched(
            process,
            pool.output_max_bytes,
            pool.max_processes or PROCESSES_COUNTED_MAX,
            stillness,
            tree,
            Confirmation(tree),
            TreeSize(process.job_pid),
        )

    def drop(self, number: int) -> None:
        """A slot's child is gone."""
        self._watched.pop(number, None)

    def begin(self, order: cmd.Watch, now_s: float) -> None:
        """An attempt begins: hold it to its limits."""
        number = order.slot
        watched = self._watched[number]
        watched.stillness.learn()
        watched.seq = order.seq
        watched.limit_bytes = order.memory_bytes
        watched.soft_bytes = order.memory_soft_bytes
        watched.soft_s = now_s
        watched.tree.forget_costs()
        watched.confirming.forget_costs()
        watched.size.begin()
        nearest = watched.soft_bytes or watched.limit_bytes
        look_s = now_s + next_sample_s(watched.peak_bytes, nearest)
        watched.peak_bytes = 0
        watched.show_s = now_s + SHOW_EVERY_S
        watched.shown_rss_bytes = watched.shown_output_bytes = 0
        watched.resting = watched.told = False
        if not watched.active or look_s < watched.look_s:
            watched.active = True
            watched.look_s = look_s
            heapq.heappush(self._looks, (look_s, number))

    def rest(self, number: int, allowed_bytes: int) -> None:
        """No attempt runs in the slot any more; its pending look goes to its rest."""
        watched = self._watched.get(number)
        if watched is not None and not watched.resting:
            watched.resting = True
            watched.limit_bytes = max(watched.limit_bytes, allowed_bytes)
            watched.rested_bytes = watched.process.rss_bytes()
            watched.stillness.begin()

    def peak_bytes(self, number: int) -> int:
        """Return the highest memory seen in the slot's present attempt."""
        watched = self._watched.get(number)
        return watched.peak_bytes if watched else 0

    def look(self, now_s: float) -> None:
        """Look at every child whose moment has come."""
        on_host = 0
        while self._looks and self._looks[0][0] <= now_s:
            look_s, number = heapq.heappop(self._looks)
            watched = self._watched.get(number)
            if watched is None or not watched.active or watched.look_s != look_s:
                continue
            try:
                on_host = on_host or host_tasks()
                self._look_at(number, watched, now_s, on_host)
            except OSError as exc:
                if exc.errno not in EXHAUSTED:
                    raise
                watched.look_s = now_s + BLIND_S
                heapq.heappush(self._looks, (watched.look_s, number))

    def _look_at(
        self, number: int, watched: Watched, now_s: float, on_host: int
    ) -> None:
        if watched.resting:
            self._look_at_rest(number, watched, now_s, on_host)
            return
        process, limit_bytes = watched.process, watched.limit_bytes
        size = watched.size.sample(now_s, watched.processes_max, on_host)
        if size > watched.processes_max and not watched.told:
            watched.told = True
            self._tell(
                inp.OverProcesses(number, watched.seq, size, watched.processes_max)
            )
        if watched.size.grows and size > CROWD:
            # To measure their memory would take longer than they need to be too many.
            watched.look_s = now_s + COUNT_AGAIN_S
            heapq.heappush(self._looks, (watched.look_s, number))
            return
        near = watched.seen_bytes > NEAR_SHARE * limit_bytes
        rss = process.rss_bytes() + watched.tree.sample(now_s, near=near)
        watched.peak_bytes = max(watched.peak_bytes, rss)
        grows = rss > watched.seen_bytes
        watched.seen_bytes = rss
        process.trim_output(OUTPUT_KEEP_BYTES, watched.output_max_bytes)
        trim_marks(process.mark_path)
        if watched.show_s <= now_s:
            self._show(number, watched, rss, now_s)
        if rss > limit_bytes and not watched.told:
            confirmed = watched.confirming.measure(limit_bytes, now_s)
            if confirmed > limit_bytes:
                watched.told = True
                self._tell(inp.OverMemory(number, watched.seq, confirmed))
        rss = min(rss, limit_bytes)
        nearest = limit_bytes
        if watched.soft_bytes is not None and rss <= watched.soft_bytes:
            nearest = watched.soft_bytes
        elif watched.soft_bytes is not None and not watched.told:
            self._look_at_soft(number, watched, watched.soft_bytes, now_s)
        wait_s = next_sample_s(rss, nearest, grows=grows)
        if watched.size.grows:
            wait_s = min(wait_s, COUNT_AGAIN_S)
        watched.look_s = now_s + wait_s
        heapq.heappush(self._looks, (watched.look_s, number))

    def _show(self, number: int, watched: Watched, rss: int, now_s: float) -> None:
        """Tell what people may see of an attempt, if that is not as it was."""
        watched.show_s = now_s + SHOW_EVERY_S
        output, written_bytes = None, watched.process.output_bytes()
        if written_bytes != watched.shown_output_bytes:
            output = watched.process.output_tail(OUTPUT_SHOWN_BYTES)
        step_bytes = max(RSS_STEP_BYTES, RSS_STEP_SHARE * watched.shown_rss_bytes)
        if output is None and abs(rss - watched.shown_rss_bytes) < step_bytes:
            return
        watched.shown_rss_bytes, watched.shown_output_bytes = rss, written_bytes
        self._tell(inp.Seen(number, watched.seq, rss, output))

    def _look_at_rest(
        self, number: int, watched: Watched, now_s: float, on_host: int
    ) -> None:
        """Look whether a child that says that it has no job does nothing."""
        process, limit_bytes = watched.process, watched.limit_bytes
        rss = process.rss_bytes() + watched.tree.sample(now_s)
        grows = rss > watched.seen_bytes
        watched.seen_bytes = rss
        said = watched.stillness.sample(now_s, watched.tree.below)
        size = watched.size.sample(now_s, watched.processes_max, on_host)
        if size > watched.processes_max:
            said = f"has {size} processes and threads"
        if rss > limit_bytes:
            confirmed = watched.confirming.measure(limit_bytes, now_s)
            if confirmed > limit_bytes and rss > watched.rested_bytes + GROWTH_BYTES:
                said = f"has {show_size(confirmed)}, {show_size(limit_bytes)} allowed"
            elif confirmed > limit_bytes:
                self._tell(inp.Overfull(number))
        if said:
            watched.active = False
            self._tell(inp.Restless(number, said))
            return
        if grows:
            watched.look_s = now_s + next_sample_s(min(rss, limit_bytes), limit_bytes)
        else:
            watched.look_s = (now_s // REST_LOOK_S + 1.0) * REST_LOOK_S
        heapq.heappush(self._looks, (watched.look_s, number))

    def _look_at_soft(
        self, number: int, watched: Watched, soft_bytes: int, now_s: float
    ) -> None:
        """Tell that the soft limit is passed, if it is; seldom: confirming costs."""
        if now_s < watched.soft_s:
            return
        confirmed = watched.confirming.measure(soft_bytes, now_s)
        watched.soft_s = now_s + SOFT_AGAIN_S
        if confirmed > soft_bytes:
            self._tell(inp.OverMemory(number, watched.seq, confirmed, soft=True))
