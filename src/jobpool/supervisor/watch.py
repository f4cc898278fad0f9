"""Looks at the memory of children, the more often the nearer to their limit.

Only children that have run an attempt are looked at: while they run one, and more
seldom while they say that they have none (`stillness`: whether that is so). Resident
memory is the trigger; before
a child is called over its limit, the figure is confirmed without what it merely
shares or maps (`ChildProcess.confirm_over`). A soft limit is told now and again for as
long as it is passed: the child may not have heard. What grows with the number of a
child's threads and processes is measured the more seldom the longer it takes: none of
them may take the supervisor from the others. On the way the mark file is cut to its
size: a handler could fill the disk with it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time

from jobpool.core.quantity import show_size
from jobpool.sandbox import spare
from jobpool.sandbox.marks import trim_marks
from jobpool.sandbox.meter import next_look_s
from jobpool.sandbox.process import ChildProcess
from jobpool.sandbox.procfs import EXHAUSTED, descendants_of, resident_bytes
from jobpool.sandbox.stillness import Stillness
from jobpool.supervisor import watchmessages as wm
from jobpool.supervisor.moments import SOFT_AGAIN_S

BLIND_S = 0.1
"""When nothing can be seen, for want of memory or of any descriptor on the whole host,
it is looked again after it."""

REST_LOOK_S = 2.0
"""A child at rest is looked at so often, all of them in one turn of the loop."""
OUTPUT_KEEP_BYTES = 64 * 1024
DEAR_S = 0.005
"""A measurement that takes longer (a tree of hundreds of threads) is dear: the next one
comes after `DEAR_FACTOR` times as long."""
DEAR_FACTOR = 10


@dataclass(slots=True)
class Watched:
    """One slot's child."""

    process: ChildProcess
    output_max_bytes: int
    stillness: Stillness
    limit_bytes: int = 0
    """The attempt's; at rest, still that of the last one."""
    soft_bytes: int | None = None
    soft_s: float = 0.0
    """When the soft limit may be told, or told again."""
    peak_bytes: int = 0
    seen_bytes: int = 0
    """At the last look."""
    tree_bytes: int = 0
    """Of what is below the child, when that was last measured."""
    tree_s: float = 0.0
    """Not before this, that is measured again."""
    confirm_s: float = 0.0
    """Not before this, the hard limit is confirmed again."""
    look_s: float = 0.0
    seq: int = 0
    """The attempt that is being watched."""
    active: bool = False
    """It is looked at."""
    resting: bool = False
    """It says that it has no job."""


class Watch:
    """The memory watch over all slots.

    Args:
        tell: told of a slot whose attempt is over a limit, or whose child does not
            rest when it should.
    """

    def __init__(self, tell: Callable[[wm.OverMemory | wm.Restless], None]) -> None:
        self._tell = tell
        self._watched: dict[int, Watched] = {}
        self._looks: list[tuple[float, int]] = []

    def next_s(self) -> float:
        """Return the monotonic time of the next look."""
        return self._looks[0][0] if self._looks else float("inf")

    def adopt(self, number: int, process: ChildProcess, output_max_bytes: int) -> None:
        """A slot has a new child."""
        spare.keep()
        stillness = Stillness(process.job_pid)
        self._watched[number] = Watched(process, output_max_bytes, stillness)

    def drop(self, number: int) -> None:
        """A slot's child is gone."""
        self._watched.pop(number, None)

    def begin(self, order: wm.Watch, now_s: float) -> None:
        """An attempt begins: hold it to its limits."""
        number = order.slot
        watched = self._watched[number]
        watched.stillness.learn()
        watched.seq = order.seq
        watched.limit_bytes = order.memory_bytes
        watched.soft_bytes = order.memory_soft_bytes
        watched.soft_s = watched.tree_s = watched.confirm_s = now_s
        nearest = watched.soft_bytes or watched.limit_bytes
        look_s = now_s + next_look_s(watched.peak_bytes, nearest)
        watched.peak_bytes = 0
        watched.resting = False
        if not watched.active or look_s < watched.look_s:
            watched.active = True
            watched.look_s = look_s
            heapq.heappush(self._looks, (look_s, number))

    def rest(self, number: int) -> None:
        """No attempt runs in the slot any more; its pending look goes to its rest."""
        watched = self._watched.get(number)
        if watched is not None and not watched.resting:
            watched.resting = True
            watched.stillness.begin()

    def peak_bytes(self, number: int) -> int:
        """Return the highest memory seen in the slot's present attempt."""
        watched = self._watched.get(number)
        return watched.peak_bytes if watched else 0

    def look(self, now_s: float) -> None:
        """Look at every child whose moment has come."""
        while self._looks and self._looks[0][0] <= now_s:
            look_s, number = heapq.heappop(self._looks)
            watched = self._watched.get(number)
            if watched is None or not watched.active or watched.look_s != look_s:
                continue
            try:
                self._look_at(number, watched, now_s)
            except OSError as exc:
                if exc.errno not in EXHAUSTED:
                    raise
                watched.look_s = now_s + BLIND_S
                heapq.heappush(self._looks, (watched.look_s, number))

    def _look_at(self, number: int, watched: Watched, now_s: float) -> None:
        if watched.resting:
            self._look_at_rest(number, watched, now_s)
            return
        process = watched.process
        if now_s >= watched.tree_s:
            began_s = thread_time()
            watched.tree_bytes = process.tree_rss_bytes()
            watched.tree_s = _again_s(now_s, began_s)
        rss = process.rss_bytes() + watched.tree_bytes
        watched.peak_bytes = max(watched.peak_bytes, rss)
        grows = rss > watched.seen_bytes
        watched.seen_bytes = rss
        process.trim_output(OUTPUT_KEEP_BYTES, watched.output_max_bytes)
        trim_marks(process.mark_path)
        if rss > watched.limit_bytes and now_s >= watched.confirm_s:
            began_s = thread_time()
            confirmed = process.confirm_over(watched.limit_bytes)
            watched.confirm_s = _again_s(now_s, began_s)
            if confirmed > watched.limit_bytes:
                watched.active = False
                self._tell(wm.OverMemory(number, watched.seq, confirmed))
                return
        rss = min(rss, watched.limit_bytes)
        nearest = watched.limit_bytes
        if watched.soft_bytes is not None and rss <= watched.soft_bytes:
            nearest = watched.soft_bytes
        elif watched.soft_bytes is not None:
            self._look_at_soft(number, watched, watched.soft_bytes, now_s)
        watched.look_s = now_s + next_look_s(rss, nearest, grows=grows)
        heapq.heappush(self._looks, (watched.look_s, number))

    def _look_at_rest(self, number: int, watched: Watched, now_s: float) -> None:
        """Look whether a child that says that it has no job does nothing."""
        process = watched.process
        began_s = thread_time()
        below = descendants_of(process.job_pid)
        rss = process.rss_bytes() + sum(map(resident_bytes, below))
        grows = rss > watched.seen_bytes
        watched.seen_bytes = rss
        limit_bytes = watched.limit_bytes
        said = watched.stillness.look(now_s, below)
        if rss > limit_bytes:
            confirmed = process.confirm_over(limit_bytes)
            if confirmed > limit_bytes:
                said = f"has {show_size(confirmed)}, {show_size(limit_bytes)} allowed"
        if said:
            watched.active = False
            self._tell(wm.Restless(number, said))
            return
        if grows:
            next_s = now_s + next_look_s(min(rss, limit_bytes), limit_bytes)
            watched.look_s = max(next_s, _again_s(now_s, began_s))
        else:
            watched.look_s = (now_s // REST_LOOK_S + 1.0) * REST_LOOK_S
        heapq.heappush(self._looks, (watched.look_s, number))

    def _look_at_soft(
        self, number: int, watched: Watched, soft_bytes: int, now_s: float
    ) -> None:
        """Tell that the soft limit is passed, if it is; seldom: confirming costs."""
        if now_s < watched.soft_s:
            return
        began_s = thread_time()
        confirmed = watched.process.confirm_over(soft_bytes)
        watched.soft_s = max(now_s + SOFT_AGAIN_S, _again_s(now_s, began_s))
        if confirmed > soft_bytes:
            self._tell(wm.OverMemory(number, watched.seq, confirmed, soft=True))


def _again_s(now_s: float, began_s: float) -> float:
    """Return when to measure again what has been measured just now.

    By processor time: that others kept the processor made nothing dear.

    Args:
        now_s: monotonic time.
        began_s: this thread's processor time when it began.
    """
    took_s = thread_time() - began_s
    return now_s + DEAR_FACTOR * took_s if took_s > DEAR_S else now_s
