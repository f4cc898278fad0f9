"""Progress of running attempts: signs of life, progress, memory and output.

Handlers report their progress; output and memory are sampled from outside. All of it
waits for the next common moment at which the progress of all jobs is written; what has
not changed is not written. The last progress is written with the attempt's end.
"""

from __future__ import annotations

from jobpool.core.config.settings import KeepOutput
from jobpool.core.jobs.job import Progress
from jobpool.errors import JobpoolBug
from jobpool.sandbox.protocol.messages import Beat
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.attempts.deadlines import next_moment, next_write_s
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned, Slot
from jobpool.supervisor.machine.state.step import Step


class ProgressReports:
    """Collects what is new of running attempts and sends it to the store.

    Args:
        step: shared by all parts of the machine.
    """

    def __init__(self, step: Step) -> None:
        self._step = step

    def beat(self, slot: Slot, frame: object) -> None:
        """The handler reports that it is alive."""
        if not isinstance(frame, Beat):
            raise JobpoolBug(f"expected Beat, got {frame!r}; please report this")
        job, now_s = slot.queue[0], self._step.now_s
        if frame.token != job.lease.token:
            return
        job.beat_s = now_s
        if frame.progress is not None:
            is_new = frame.progress != job.written
            job.progress = frame.progress if is_new else None
        if frame.checkpoint is not None:
            job.checkpoint = frame.checkpoint
        self._set_moments(slot, job)

    def sampled(self, slot: Slot, detail: object) -> None:
        """The memory watch has sampled something new."""
        if not isinstance(detail, inp.AttemptSampled):
            raise JobpoolBug(
                f"expected AttemptSampled, got {detail!r}; please report this"
            )
        job = slot.queue[0]
        if detail.seq != job.seq:
            return  # sampled before the present attempt began
        job.rss_bytes = detail.rss_bytes
        if detail.output is not None and self._may_show(job):
            job.output = detail.output
        self._set_moments(slot, job)

    def _may_show(self, job: Assigned) -> bool:
        if job.lease.codec is not None:
            return False  # only its child could encode it
        registry = self._step.registry
        keep = registry.keep_output(job.lease.kind) if registry else None
        return keep is not KeepOutput.NONE

    def _set_moments(self, slot: Slot, job: Assigned) -> None:
        now_s = self._step.now_s
        waits = job.progress is not None or job.rss_bytes is not None
        if not waits:
            job.report_s = NEVER_S
        elif job.report_s == NEVER_S:
            job.report_s = next_write_s(now_s)
        self._step.wake_slot_at(slot, next_moment(slot, now_s))

    def write(self, job: Assigned) -> None:
        """Write what is new of a running attempt, if anything."""
        progress, checkpoint = job.progress, job.checkpoint
        rss_bytes, output = job.rss_bytes, job.output
        job.progress = job.checkpoint = job.rss_bytes = job.output = None
        job.report_s = NEVER_S
        if progress is None and checkpoint is None and rss_bytes is None:
            return
        if progress is not None:
            job.written = progress
        job.written_s = self._step.now_s
        lease = job.lease
        self._step.out.append(
            cmd.Record(
                Progress(lease.id, lease.token, progress, checkpoint, rss_bytes, output)
            )
        )

    def write_last(self, job: Assigned, *, succeeded: bool) -> None:
        """Write what outlives an attempt, if anything waits.

        Args:
            job: its job.
            succeeded: whether it has: then no other attempt needs the checkpoint.
        """
        job.rss_bytes = job.output = None
        if succeeded:
            job.checkpoint = None
        self.write(job)
