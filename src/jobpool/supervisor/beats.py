"""What handlers report while they run: that they live, and how far they are.

Progress waits for the next of the moments at which that of all jobs is written; what
is the same as before is not written. The last of it goes with the end.
"""

from __future__ import annotations

from jobpool.core.job import Progress
from jobpool.errors import JobpoolBug
from jobpool.sandbox.frames import Beat
from jobpool.supervisor import messages as m
from jobpool.supervisor.desk import Desk
from jobpool.supervisor.moments import next_moment, next_write_s
from jobpool.supervisor.slot import NEVER_S, Assigned, Slot


class Beats:
    """Takes the reports of running attempts, and gives them to the store.

    Args:
        desk: shared with the rest of the core.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def beat(self, slot: Slot, frame: object) -> None:
        """The handler says that it is alive."""
        if not isinstance(frame, Beat):
            raise JobpoolBug(f"expected Beat, got {frame!r}; please report this")
        job, now_s = slot.queue[0], self._desk.now_s
        if frame.token != job.lease.token:
            return
        job.beat_s = now_s
        if frame.progress is not None:
            self._progress(job, frame.progress)
        if frame.checkpoint is not None:
            job.checkpoint = frame.checkpoint
        self._desk.wake_slot_at(slot, next_moment(slot, now_s))

    def _progress(self, job: Assigned, progress: bytes) -> None:
        if progress == job.written:
            job.progress, job.progress_s = None, NEVER_S
            return
        if job.progress is None:
            job.progress_s = next_write_s(self._desk.now_s)
        job.progress = progress

    def write(self, job: Assigned, *, succeeded: bool = False) -> None:
        """Write what a running attempt reported, if anything waits.

        Args:
            job: its job.
            succeeded: it has; no other attempt will need the checkpoint.
        """
        progress = job.progress
        checkpoint = None if succeeded else job.checkpoint
        if progress is None and checkpoint is None:
            return
        if progress is not None:
            job.written = progress
        job.progress, job.progress_s, job.checkpoint = None, NEVER_S, None
        job.written_s = self._desk.now_s
        beat = Progress(job.lease.id, job.lease.token, progress, checkpoint)
        self._desk.out.append(m.Record(beat))
