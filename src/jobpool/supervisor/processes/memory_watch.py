"""The memory watch: samples children, more often the nearer they are to their limit.

Only children that have run an attempt are sampled: while they run one, and less often
while they report that they have none (`idleness`: whether that is true). Resident
memory is the trigger; before a child counts as over its limit, the figure is confirmed
without what it merely shares or maps (`Confirmation`). After that it is still sampled
until it is gone, for the evidence: even dying takes a while. A soft limit is signaled
again and again while it is exceeded: the child may have missed it. Whatever costs more
with the number of a child's threads and processes is measured less often the longer it
takes: no child may take the supervisor's time from the others. A child that is alone in
its tree and has used no processor time since its last sample cannot have grown, and is
spared the next one: many that sleep cost little. Each sample also cuts
the mark file to its size, since a handler could fill the disk with it, and counts the
child's processes when there can be more of them (`tree_size`).

For an idle child the highest limit among its attempts counts: what one of them has left
is not the fault of the last one. Only what grows while idle is charged to it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from jobpool.core.config.settings import PoolSettings
from jobpool.core.isolation.cgroups import PROCESSES_COUNTED_MAX
from jobpool.core.jobs.memory_trail import MemoryTrail, Trail
from jobpool.core.units import show_size
from jobpool.sandbox.handles.child import ChildProcess
from jobpool.sandbox.metering.confirmation import Confirmation
from jobpool.sandbox.metering.idleness import Idleness
from jobpool.sandbox.metering.sampling import SAMPLE_MAX_S, next_sample_s, together_s
from jobpool.sandbox.metering.tree_memory import TreeMemory
from jobpool.sandbox.metering.tree_size import COUNT_AGAIN_S, TreeSize, host_tasks
from jobpool.sandbox.runs.marks import trim_marks
from jobpool.sandbox.system import reserve_fds
from jobpool.sandbox.system.procfs import EXHAUSTED, cpu_s
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import SOFT_AGAIN_S

BLIND_S = 0.1
"""The pause after a sample that failed because the host had no memory or descriptor."""

IDLE_SAMPLE_S = 2.0
"""Between two samples of an idle child; all idle children in one turn of the loop."""
OUTPUT_KEEP_BYTES = 64 * 1024
GROWTH_BYTES = 16 * 2**20
"""How much an idle child may grow: its last attempt is being cleaned up."""
SHOW_EVERY_S = 1.0
"""Between two reports of an attempt's memory and output, if they have changed."""
OUTPUT_SHOWN_BYTES = 8 * 1024
RSS_STEP_BYTES = 2**20
RSS_STEP_SHARE = 0.05
"""A smaller change of its memory is not reported."""
CROWD = 500
"""With more processes than this, and growing, they are only counted."""
NEAR_SHARE = 0.5
"""A child above this share of its limit counts as near it."""


@dataclass(slots=True)
class Watched:
    """One slot's child."""

    process: ChildProcess
    output_max_bytes: int
    processes_max: int
    """Processes and threads."""
    idleness: Idleness
    tree: TreeMemory
    confirming: Confirmation
    size: TreeSize
    limit_bytes: int = 0
    """The attempt's; at rest, the highest among the child's."""
    soft_bytes: int | None = None
    soft_s: float = 0.0
    """When the soft limit may be signaled, or signaled again."""
    peak_bytes: int = 0
    seen_bytes: int = 0
    """At the last sample."""
    began_s: float = 0.0
    """When the attempt began to be watched."""
    trail: MemoryTrail = field(default_factory=MemoryTrail)
    rested_bytes: int = 0
    """The child's own memory when it became idle."""
    due_s: float = 0.0
    """When it is sampled next, by the monotonic clock."""
    wait_s: float = 0.0
    """From its last sample to the next."""
    sampled_s: float = 0.0
    """When it was sampled last, and not spared it."""
    cpu_s: float = -1.0
    """The processor time it had used just before that; less than 0: unknown."""
    seq: int = 0
    """The attempt that is being watched."""
    show_s: float = 0.0
    """When its memory and output may be reported next."""
    shown_rss_bytes: int = 0
    shown_output_bytes: int = 0
    """How much output it had written at the last report."""
    active: bool = False
    """It is being sampled."""
    resting: bool = False
    """It reports that it has no job."""
    reported: bool = False
    """It was reported over a limit."""


class Watch:
    """The memory watch over all slots.

    Args:
        report: called when a slot's attempt is over a limit or has changed, or when
            its child is active without a job.
    """

    def __init__(
        self,
        report: Callable[
            [
                inp.OverMemory
                | inp.OverProcesses
                | inp.AttemptSampled
                | inp.NotIdle
                | inp.Overfull
            ],
            None,
        ],
    ) -> None:
        self._report = report
        self._watched: dict[int, Watched] = {}
        self._due: list[tuple[float, int]] = []

    def next_s(self) -> float:
        """Return the monotonic time of the next sample."""
        return self._due[0][0] if self._due else float("inf")

    def adopt(self, number: int, process: ChildProcess, pool: PoolSettings) -> None:
        """A slot has a new child."""
        reserve_fds.keep()
        idleness, tree = Idleness(process.job_pid), TreeMemory(process.job_pid)
        self._watched[number] = Watched(
            process,
            pool.output_max_bytes,
            pool.max_processes or PROCESSES_COUNTED_MAX,
            idleness,
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
        watched.idleness.learn()
        watched.seq = order.seq
        watched.limit_bytes = order.memory_bytes
        watched.soft_bytes = order.memory_soft_bytes
        watched.soft_s = now_s
        watched.tree.forget_costs()
        watched.confirming.forget_costs()
        watched.size.begin()
        nearest = watched.soft_bytes or watched.limit_bytes
        due_s = now_s + next_sample_s(watched.peak_bytes, nearest)
        watched.peak_bytes = 0
        watched.began_s = now_s
        watched.trail.begin()
        watched.show_s = now_s + SHOW_EVERY_S
        watched.shown_rss_bytes = watched.shown_output_bytes = 0
        watched.resting = watched.reported = False
        if not watched.active or due_s < watched.due_s:
            watched.active = True
            watched.due_s = due_s
            heapq.heappush(self._due, (due_s, number))

    def rest(self, number: int, allowed_bytes: int) -> None:
        """No attempt runs in the slot any more: its next sample is an idle child's."""
        watched = self._watched.get(number)
        if watched is not None and not watched.resting:
            watched.resting = True
            watched.limit_bytes = max(watched.limit_bytes, allowed_bytes)
            watched.rested_bytes = watched.process.rss_bytes()
            watched.idleness.begin()

    def peak_bytes(self, number: int) -> int:
        """Return the highest memory seen in the slot's present attempt."""
        watched = self._watched.get(number)
        return watched.peak_bytes if watched else 0

    def trail(self, number: int) -> tuple[int, Trail | None]:
        """Return the attempt watched last in the slot, and its memory over time."""
        watched = self._watched.get(number)
        if watched is None:
            return 0, None
        return watched.seq, Trail(watched.limit_bytes, watched.trail.points())

    def sample(self, now_s: float) -> None:
        """Sample every child that is due."""
        on_host = 0
        while self._due and self._due[0][0] <= now_s:
            due_s, number = heapq.heappop(self._due)
            watched = self._watched.get(number)
            if watched is None or not watched.active or watched.due_s != due_s:
                continue
            try:
                on_host = on_host or host_tasks()
                self._sample(number, watched, now_s, on_host)
            except OSError as exc:
                if exc.errno not in EXHAUSTED:
                    raise
                watched.due_s = now_s + BLIND_S
                heapq.heappush(self._due, (watched.due_s, number))

    def _sample(
        self, number: int, watched: Watched, now_s: float, on_host: int
    ) -> None:
        if watched.resting:
            self._sample_idle(number, watched, now_s, on_host)
            return
        process, limit_bytes = watched.process, watched.limit_bytes
        # Read before the sample: whatever the child does during it is seen next time.
        if _slept(watched, now_s):
            self._again(number, watched, now_s)
            return
        if self._crowds(number, watched, now_s, on_host):
            # Measuring their memory takes longer than they need to become too many.
            watched.due_s = now_s + COUNT_AGAIN_S
            heapq.heappush(self._due, (watched.due_s, number))
            return
        near = watched.seen_bytes > NEAR_SHARE * limit_bytes
        rss = process.rss_bytes() + watched.tree.sample(now_s, near=near)
        watched.peak_bytes = max(watched.peak_bytes, rss)
        _note(watched, rss, now_s)
        grows = rss > watched.seen_bytes
        watched.seen_bytes = rss
        process.trim_output(OUTPUT_KEEP_BYTES, watched.output_max_bytes)
        trim_marks(process.mark_path)
        if watched.show_s <= now_s:
            self._show(number, watched, rss, now_s)
        if rss > limit_bytes and not watched.reported:
            confirmed = watched.confirming.measure(limit_bytes, now_s)
            if confirmed > limit_bytes:
                watched.reported = True
                self._report(inp.OverMemory(number, watched.seq, confirmed))
        rss = min(rss, limit_bytes)
        nearest = limit_bytes
        if watched.soft_bytes is not None and rss <= watched.soft_bytes:
            nearest = watched.soft_bytes
        elif watched.soft_bytes is not None and not watched.reported:
            self._check_soft(number, watched, watched.soft_bytes, now_s)
        wait_s = next_sample_s(rss, nearest, grows=grows)
        if watched.size.grows:
            wait_s = min(wait_s, COUNT_AGAIN_S)
        watched.wait_s, watched.sampled_s = wait_s, now_s
        self._again(number, watched, now_s)

    def _crowds(
        self, number: int, watched: Watched, now_s: float, on_host: int
    ) -> bool:
        """Count a child's processes, and say whether to do nothing else now."""
        size = watched.size.sample(now_s, watched.processes_max, on_host)
        if size > watched.processes_max and not watched.reported:
            watched.reported = True
            self._report(
                inp.OverProcesses(number, watched.seq, size, watched.processes_max)
            )
        return watched.size.grows and size > CROWD

    def _again(self, number: int, watched: Watched, now_s: float) -> None:
        """Have a child sampled after its wait, or a little earlier beside others."""
        watched.due_s = together_s(now_s, watched.wait_s)
        heapq.heappush(self._due, (watched.due_s, number))

    def _show(self, number: int, watched: Watched, rss: int, now_s: float) -> None:
        """Report an attempt's memory and output, if they have changed."""
        watched.show_s = now_s + SHOW_EVERY_S
        output, written_bytes = None, watched.process.output_bytes()
        if written_bytes != watched.shown_output_bytes:
            output = watched.process.output_tail(OUTPUT_SHOWN_BYTES)
        step_bytes = max(RSS_STEP_BYTES, RSS_STEP_SHARE * watched.shown_rss_bytes)
        if output is None and abs(rss - watched.shown_rss_bytes) < step_bytes:
            return
        watched.shown_rss_bytes, watched.shown_output_bytes = rss, written_bytes
        self._report(inp.AttemptSampled(number, watched.seq, rss, output))

    def _sample_idle(
        self, number: int, watched: Watched, now_s: float, on_host: int
    ) -> None:
        """Check that a child that reports no job is idle."""
        process, limit_bytes = watched.process, watched.limit_bytes
        rss = process.rss_bytes() + watched.tree.sample(now_s)
        grows = rss > watched.seen_bytes
        watched.seen_bytes = rss
        activity = watched.idleness.sample(now_s, watched.tree.below)
        size = watched.size.sample(now_s, watched.processes_max, on_host)
        if size > watched.processes_max:
            activity = f"has {size} processes and threads"
        if rss > limit_bytes:
            confirmed = watched.confirming.measure(limit_bytes, now_s)
            if confirmed > limit_bytes and rss > watched.rested_bytes + GROWTH_BYTES:
                activity = (
                    f"has {show_size(confirmed)}, {show_size(limit_bytes)} allowed"
                )
            elif confirmed > limit_bytes:
                self._report(inp.Overfull(number))
        if activity:
            watched.active = False
            self._report(inp.NotIdle(number, activity))
            return
        if grows:
            watched.due_s = now_s + next_sample_s(min(rss, limit_bytes), limit_bytes)
        else:
            watched.due_s = (now_s // IDLE_SAMPLE_S + 1.0) * IDLE_SAMPLE_S
        heapq.heappush(self._due, (watched.due_s, number))

    def _check_soft(
        self, number: int, watched: Watched, soft_bytes: int, now_s: float
    ) -> None:
        """Report a soft limit that is exceeded; not often, since confirming costs."""
        if now_s < watched.soft_s:
            return
        confirmed = watched.confirming.measure(soft_bytes, now_s)
        watched.soft_s = now_s + SOFT_AGAIN_S
        if confirmed > soft_bytes:
            self._report(inp.OverMemory(number, watched.seq, confirmed, soft=True))


def _slept(watched: Watched, now_s: float) -> bool:
    """Say whether a child cannot have grown since its last sample.

    What it shares with others, and what the kernel does for it, is seen within
    `SAMPLE_MAX_S` all the same. One with descendants, or so many threads that looking
    for descendants is put off, is sampled each time.
    """
    before_s, watched.cpu_s = watched.cpu_s, cpu_s(watched.process.job_pid)
    return (
        watched.cpu_s == before_s
        and watched.cpu_s > 0.0
        and watched.tree.is_alone
        and not watched.size.grows
        and now_s < watched.sampled_s + SAMPLE_MAX_S
    )


def _note(watched: Watched, rss: int, now_s: float) -> None:
    """Add a sample to the trail, unless the child is dying, and gives memory back."""
    if rss > (watched.seen_bytes if watched.reported else 0):
        watched.trail.add(int(1000 * max(0.0, now_s - watched.began_s)), rss)
