"""What a slot's child, and the watch over it, are told of an attempt."""

from __future__ import annotations

from jobpool.core.job import Start
from jobpool.sandbox.frames import RunJob
from jobpool.supervisor import messages as m
from jobpool.supervisor import watchmessages as wm
from jobpool.supervisor.slot import Assigned, Slot


def run_job(job: Assigned) -> RunJob:
    """Return what the child is to run."""
    lease, limits = job.lease, job.limits
    return RunJob(
        seq=job.seq,
        id=lease.id,
        token=lease.token,
        kind=lease.kind,
        attempt=lease.attempt,
        payload=lease.payload,
        checkpoint=lease.checkpoint,
        timeout_s=limits.timeout_s,
        soft_timeout_s=limits.soft_timeout_s,
        memory_soft_bytes=limits.memory_soft_bytes
        if limits.memory_soft_raises
        else None,
        memory_bytes=limits.memory_bytes,
        heartbeat_timeout_s=limits.heartbeat_timeout_s,
    )


def note_start(slot: Slot, job: Assigned) -> m.NoteStart:
    """Return what the store is told of an attempt that has begun and goes on."""
    lease, began_s = job.lease, (job.started_s or 0.0) + job.slept_s
    return m.NoteStart(Start(lease.id, lease.token, slot.name, began_s))


def watch(slot: Slot, job: Assigned) -> wm.Watch:
    """Return what the slot's child is held to while the attempt runs."""
    limits = job.limits
    return wm.Watch(slot.number, job.seq, limits.memory_bytes, limits.memory_soft_bytes)
