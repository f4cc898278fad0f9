"""What is read of one job to be shown: redacted, with all that is near it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.application.redaction import HIDDEN
from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.rules.quotas.budget import counted_like
from jobpool.errors import StoreRefused
from jobpool.monitoring.looking.waits import why_it_waits
from jobpool.operations.redaction import Redactor
from jobpool.operations.trail.entries import Entry, entries
from jobpool.store.protocol import Store
from jobpool.store.records.flows import FlowFilter, FlowRow, MemberOf
from jobpool.store.records.jobs import KeptOutput
from jobpool.store.records.operating import AuditFilter
from jobpool.store.records.quotas import QuotaWait
from jobpool.store.records.runs import KindRecord
from jobpool.store.records.schedules import JobTick

_DONE_MAX = 10
"""Most entries of the audit trail: `jobpool audit --job` has them all."""


class Place(NamedTuple):
    """Where in a flow a job is."""

    row: FlowRow
    member: MemberOf


class Seen(NamedTuple):
    """What was read of a job: redacted, unless that is off."""

    job: Job
    attempts: Sequence[Attempt]
    """The unsuccessful ones, oldest first."""
    known: KindRecord | None
    """Its kind as published; None: not published."""
    quotas: Sequence[QuotaWait]
    """Buckets that have no permit for it."""
    waits: str
    """What keeps it from running; "": nothing does."""
    links: Sequence[tuple[str, str]]
    """What is said of its relations to others: a name and a text."""
    tick: JobTick | None
    place: Place | None
    """In a flow; None: it is in none."""
    output: str | None
    kept: KeptOutput | None
    payload: bytes | None
    """None: not asked for."""
    done: Sequence[Entry] | None
    """What people did to it; None: this login may not read that."""
    untold: str
    """Why that is None."""
    is_redactable: bool
    """Whether its kind has said what of it is to be redacted."""


def read(
    store: Store, job: Job, now: int, *, unredacted: bool, with_payload: bool
) -> Seen:
    """Read what there is about a job.

    Args:
        store: where it is.
        job: as stored.
        now: in milliseconds.
        unredacted: whoever asks may see what its kind hides, and wants to.
        with_payload: its arguments as well.
    """
    kinds = store.kinds()
    known = next((r for r in kinds if r.kind == job.kind), None)
    redactor = Redactor(store, kinds, is_off=unredacted)
    redaction = redactor.of(job)
    payload = store.payload(job.id) or None if with_payload else None
    is_due = job.state is JobState.RUNNABLE
    quotas = _quotas(store, job, redactor) if is_due else []
    done, untold = _done(store, job.id)
    return Seen(
        job=redaction.job(job),
        attempts=redaction.attempts(store.attempts(job.id)),
        known=known,
        quotas=quotas,
        waits=why_it_waits(store, job, known, quotas, now),
        links=_links(store, job),
        tick=store.tick_of(job.id),
        place=_place(store, job.id),
        output=redaction.text(store.output(job.id)),
        kept=redaction.kept(store.kept_output(job.id)),
        payload=redaction.payload(payload),
        done=done,
        untold=untold,
        is_redactable=redactor.knows(job.kind),
    )


def _quotas(store: Store, job: Job, redactor: Redactor) -> list[QuotaWait]:
    """Return the buckets that have no permit for a job; hidden values are no names."""
    waits = store.waits_of(job.id)
    if not any(one.value for one in waits):
        return waits
    paths = {row.name: row.quota.path for row in store.quotas() if row.quota}
    return [
        msgspec.structs.replace(one, value=HIDDEN)
        if (path := paths.get(counted_like(one.quota))) is not None
        and redactor.hides(path)
        else one
        for one in waits
    ]


def _links(store: Store, job: Job) -> list[tuple[str, str]]:
    """Return which job this one has replaced, and which replaces or follows it."""
    rows = []
    for name, other_id in (
        ("replays", job.replays),
        ("replaced", job.replaced_by),
        ("followed", job.followed_by),
    ):
        if other_id is not None:
            other = store.get(other_id)
            state = "was pruned" if other is None else f"is {other.shown_state}"
            by = "by " * (name != "replays")
            rows.append((name, f"{by}job {other_id}, which {state}"))
    return rows


def _place(store: Store, job_id: int) -> Place | None:
    """Return where in a flow a job is; None: in none that is still there."""
    member = store.flow_of(job_id)
    if member is None:
        return None
    rows = store.flows(FlowFilter(ids=(member.flow,)), 1)
    return Place(rows[0], member) if rows else None


def _done(store: Store, job_id: int) -> tuple[list[Entry] | None, str]:
    """Return what people did to a job; or None, and why it cannot be read."""
    try:
        return list(entries(store, AuditFilter(), job_id, _DONE_MAX)), ""
    except StoreRefused as error:
        return None, f"what people did to it is left out: {error}"
