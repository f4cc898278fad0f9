"""What a slot's child, and the watch over it, are told."""

from __future__ import annotations

from collections.abc import Iterable

from jobpool.core.job import Start
from jobpool.core.settings import PoolSettings, Settings
from jobpool.core.storeurl import files_of, without_password
from jobpool.errors import UsageError
from jobpool.sandbox.frames import Answer, Ask, Go, RunJob
from jobpool.sandbox.process import ChildProcess
from jobpool.sandbox.rundirectory import RunDirectory
from jobpool.supervisor import messages as m
from jobpool.supervisor import watchmessages as wm
from jobpool.supervisor.registry import Registry
from jobpool.supervisor.slot import Assigned, Slot

CHECKPOINT_MAX_BYTES = 64 * 1024


def go(
    process: ChildProcess,
    run: RunDirectory,
    settings: Settings,
    pool: PoolSettings,
    spared: Iterable[int],
) -> Go:
    """Return what a new child is told of itself."""
    return Go(
        slot_name=process.slot_name,
        run_id=run.run_id,
        memory_backstop_bytes=pool.limits.memory_bytes,
        result_max_bytes=settings.result_max_bytes,
        checkpoint_max_bytes=CHECKPOINT_MAX_BYTES,
        tmp_root=str(run.tmp_root),
        store_url=without_password(settings.store),
        lockdown=process.lockdown,
        payload_max_bytes=settings.payload_max_bytes,
        queue_depth_max=settings.queue_depth_max,
        cgroup=process.group.path if process.group else "",
        is_for_one=pool.recycle_jobs == 1,
        spared=tuple(spared),
        hidden=(*files_of(settings.store), str(run.path.parent)),
    )


def run_job(job: Assigned) -> RunJob:
    """Return what the child is to run."""
    lease, limits = job.lease, job.limits
    # Python makes a dict of more than 15 keywords before it calls.
    return RunJob(
        job.seq,
        lease.id,
        lease.token,
        lease.kind,
        lease.attempt,
        lease.payload,
        lease.checkpoint,
        timeout_s=limits.timeout_s,
        soft_timeout_s=limits.soft_timeout_s,
        memory_soft_bytes=limits.memory_soft_bytes
        if limits.memory_soft_raises
        else None,
        memory_bytes=limits.memory_bytes,
        heartbeat_timeout_s=limits.heartbeat_timeout_s,
        max_attempts=lease.max_attempts or job.policy.max_attempts,
        failures=lease.failures,
        priority=lease.priority,
        key=lease.key,
        tenant=lease.tenant,
    )


def of_ask(slot: Slot, ask: Ask, registry: Registry | None) -> m.Enqueue | m.Send:
    """Return what a handler's request leads to: the store's work, or a refusal."""
    if ask.reads is None or (registry and registry.may_read(slot.pool)):
        return m.Enqueue(slot.number, slot.child, ask.ask, ask.jobs, ask.reads)
    refusal = Answer(
        ask.ask,
        None,
        error_class=UsageError.__name__,
        error="a handler of a pool with sandbox = strict cannot read jobs: what others "
        "have returned is kept from it. Pass it what it needs as arguments, or run it "
        "in another pool",
    )
    return m.Send(slot.number, refusal)


def note_start(slot: Slot, job: Assigned) -> m.NoteStart:
    """Return what the store is told of an attempt that has begun and goes on."""
    lease, began_s = job.lease, (job.started_s or 0.0) + job.slept_s
    return m.NoteStart(Start(lease.id, lease.token, slot.name, began_s))


def watch(slot: Slot, job: Assigned) -> wm.Watch:
    """Return what the slot's child is held to while the attempt runs."""
    limits = job.limits
    return wm.Watch(slot.number, job.seq, limits.memory_bytes, limits.memory_soft_bytes)
