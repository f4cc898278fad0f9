"""The fast path: plain successes, nearly all that a busy child sends, many at once.

Theory of operation. The slot table handles one end after another, whatever it is
(`Running.done`). A job that returns and leaves nothing behind needs none of the
decisions made there. So the plain successes of one read are accounted for here in one
pass, and figures of the child or its pool are updated once for all of them. Anything
else ends the pass and goes to the table: an error, output, a child that is to be
replaced, an end out of turn; so does any end that others must know of, such as that of
a suspect or of a kind that has crashed lately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from jobpool.core.events.event import Event
from jobpool.core.events.figures import AttemptsSucceeded
from jobpool.core.jobs.job import Settlement
from jobpool.core.rules.lifecycle import success
from jobpool.sandbox.protocol.messages import Done, FromChild
from jobpool.sandbox.protocol.verdict import evidence_of_success, is_plain_success
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.attempts.accounting import of_done
from jobpool.supervisor.machine.attempts.progress import ProgressReports
from jobpool.supervisor.machine.attempts.running import Running
from jobpool.supervisor.machine.state import notices
from jobpool.supervisor.machine.state.backpressure import SMALL_BYTES
from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.recent_ends import RecentEnds
from jobpool.supervisor.machine.state.slot import Slot, SlotState
from jobpool.supervisor.machine.state.step import Step
from jobpool.supervisor.machine.state.usage import Usage


class _Used(NamedTuple):
    """What attempts of a kind have used, in order of their ends."""

    peaks_bytes: list[int]
    durations_s: list[float]
    waits_s: list[float]
    """Until they began; empty, as the numbers, if nobody counts."""
    attempts: list[int]
    """Their numbers."""


class FastPath:
    """Accounts for the plain successes of busy slots.

    Args:
        step: shared by all parts of the machine.
        pools: by name.
        progress: has what is still to be written of an attempt.
        running: goes on with the slot's next job, or without one.
        gates: may need every end, as of a kind that has crashed lately.
        usage: counts what they have used.
        ends: counts how they have ended.
    """

    def __init__(
        self,
        step: Step,
        pools: Mapping[str, Pool],
        progress: ProgressReports,
        running: Running,
        *,
        gates: Sequence[Gate],
        usage: Usage,
        ends: RecentEnds,
    ) -> None:
        self._step = step
        self._pools = pools
        self._progress = progress
        self._running = running
        self._gates = gates
        self._usage = usage
        self._ends = ends

    def take(self, slot: Slot, frames: Sequence[FromChild], first: int) -> int:
        """Account for the plain successes that a slot's messages begin with.

        Args:
            slot: the slot.
            frames: all messages that have come.
            first: the index of the first one that is not handled yet.

        Returns:
            How many messages are handled now; 0: the next one is not a plain success.
        """
        if slot.state is not SlotState.BUSY or self._gates_need_ends():
            return 0
        ended: list[Settlement] = []
        events: list[Event] = []
        step, queue, name = self._step, slot.queue, slot.name
        reports = step.reports_successes
        used: defaultdict[str, _Used] = defaultdict(_nothing)
        rss_bytes, done, others_begin = 0, None, False
        for frame in islice(frames, first, None):
            if type(frame) is not Done or not is_plain_success(frame) or not queue:
                break
            job = queue[0]
            lease = job.lease
            is_its_turn = frame.token == lease.token and frame.seq == job.seq
            if not is_its_turn or lease.suspect:
                break
            slot.ended()
            others_begin |= lease.laned or lease.step is not None
            if job.progress is not None:
                self._progress.write_last(job, succeeded=True)
            done = frame
            evidence = evidence_of_success(done, name)
            began_s, ended_s = of_done(job, done, step)
            ended.append(
                success(lease, evidence, done.result, began_s=began_s, ended_s=ended_s)
            )
            if done.result and len(done.result) > SMALL_BYTES:
                self._pools[slot.pool].owe(lease.kind, ended[-1])
            of_kind = used[lease.kind]
            of_kind.peaks_bytes.append(done.peak_rss_bytes)
            of_kind.durations_s.append(done.duration_s)
            if step.counts:
                of_kind.waits_s.append(notices.waited_s(job, began_s - job.slept_s))
                of_kind.attempts.append(lease.attempt)
            slot.cpu_s += done.cpu_s
            rss_bytes = max(rss_bytes, done.rss_bytes)
            slot.allowed_bytes = max(slot.allowed_bytes, job.limits.memory_bytes)
            if reports or job.trace is not None or lease.schedule is not None:
                events += notices.plain_success(step, job, name, ended[-1])
        if done is None:
            return 0
        kind_of_all = next(iter(used)) if len(used) == 1 else None
        self._ends.left(slot, kind_of_all, done.rss_bytes, len(ended))
        slot.jobs += len(ended)
        slot.idled_s, slot.ended_token = 0.0, done.token
        self._count(slot, used)
        step.others_begin |= others_begin
        step.settle_plain(ended)
        step.report(events)
        self._running.go_on(slot, rss_bytes)
        return len(ended)

    def _count(self, slot: Slot, used: Mapping[str, _Used]) -> None:
        """Add what attempts have used to what is known of their kinds."""
        for kind, of_kind in used.items():
            durations_s = of_kind.durations_s
            self._pools[slot.pool].took(kind, durations_s)
            self._usage.succeeded(kind, slot.pool, of_kind.peaks_bytes, durations_s)
            self._ends.succeeded(kind, len(durations_s))
            if self._step.counts:
                event = AttemptsSucceeded(
                    at_ms=self._step.now_ms,
                    kind=kind,
                    pool=slot.pool,
                    **of_kind._asdict(),
                )
                self._step.report(event)

    def _gates_need_ends(self) -> bool:
        """Say whether a gate needs every end, one by one."""
        return any(gate.needs_ends for gate in self._gates)


def _nothing() -> _Used:
    return _Used([], [], [], [])
