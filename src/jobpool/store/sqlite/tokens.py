"""Ids and tokens, which SQLite's single writer can give out itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from jobpool.core.jobs.job import Enqueued, NewJob, Settlement
from jobpool.core.jobs.uniform_batch import UniformJobs, payloads_of
from jobpool.core.rules.repairs.restoring import TOKEN_BITS, TOKENS_MAX
from jobpool.errors import StoreRefused
from jobpool.store.operations.enqueue import job_rows
from jobpool.store.operations.flows.members import Member, member_rows
from jobpool.store.operations.settle import has_result, success_row
from jobpool.store.sqlite import result_parts
from jobpool.store.statements.moment import Moment
from jobpool.store.statements.named_sql import load_queries
from jobpool.store.statements.parameters import Blobs, as_json, as_json_object
from jobpool.store.statements.session import Session

_NAMES = (
    "kind",
    "pool",
    "state",
    "priority",
    "key",
    "unique_text",
    "tenant",
    "max_attempts",
    "timeout_s",
    "memory_bytes",
    "run_at_ms",
    "expires_at_ms",
    "codec",
    "lane",
    "quota_values",
    "trace",
    "step",
    "generation",
    "added_by",
)
"""The names of the values in a row of `job_rows`, and of `member_rows`."""
ALONE_BYTES = 2**16
"""Copying a larger result costs more than a statement of its own."""
_TOKENS_REMEDY = load_queries("sqlite")["reset_tokens"]


def insert(
    session: Session, jobs: Sequence[NewJob], now_ms: int
) -> list[Enqueued | None]:
    """Store checked jobs without conflicts, in order."""
    rows, states = job_rows(jobs, now_ms)
    if isinstance(jobs, UniformJobs):
        alike = dict(zip(_NAMES, (*rows[0], None, None, None), strict=True))
        ids: Sequence[int] = _insert_alike(session, len(rows), now_ms=now_ms, **alike)
    else:
        ids = _insert_mixed(session, "insert_jobs", rows, now_ms)
    _insert_payloads(session, ids, payloads_of(jobs))
    return [
        Enqueued(job_id, created=True, state=state)
        for job_id, state in zip(ids, states, strict=True)
    ]


def insert_members(session: Session, members: Sequence[Member], now_ms: int) -> None:
    """Store checked members of flows, in order."""
    rows = member_rows(members, now_ms)
    ids: Sequence[int]
    if len(rows) > 1 and rows.count(rows[0]) == len(rows):
        alike = dict(zip(_NAMES, rows[0], strict=True))
        ids = _insert_alike(session, len(rows), now_ms=now_ms, **alike)
    else:
        ids = _insert_mixed(session, "insert_members", rows, now_ms)
    _insert_payloads(session, ids, [member.job.payload for member in members])


def _insert_mixed(
    session: Session, name: str, rows: Sequence[tuple[Any, ...]], now_ms: int
) -> Sequence[int]:
    stored = session.rows(name, rows=as_json(rows), now_ms=now_ms)
    ids = sorted(job_id for (job_id,) in stored)
    if len(ids) != len(rows):
        raise _trigger_interfered(session, len(rows), len(ids))
    return ids


def _insert_payloads(
    session: Session, ids: Sequence[int], payloads: Sequence[bytes]
) -> None:
    blobs = Blobs()
    places = zip(ids, *blobs.add_all(payloads), strict=True)
    session.run("insert_payloads", rows=as_json(places), blobs=blobs.joined())


def _insert_alike(session: Session, count: int, **fields: Any) -> Sequence[int]:
    """Store *count* uniform jobs; return their ids.

    Raises:
        StoreRefused: a trigger has left some out or inserted others between them; the
            transaction must be rolled back.
    """
    highest: int = session.value("highest_id") if count > 1 else 0
    stored = session.run("insert_alike", count=count, **fields)
    last: int = session.value("last_id")
    if stored != count or (count > 1 and last != highest + count):
        raise _trigger_interfered(session, count, stored)
    return range(last - count + 1, last + 1)


def _trigger_interfered(session: Session, count: int, stored: int) -> StoreRefused:
    return StoreRefused(
        f"{count} new jobs should have consecutive ids in {session.place}, but "
        f"{stored} were stored, or others between them. A trigger on the table leaves "
        "jobs out or inserts others: remove it; nothing was enqueued"
    )


def lease_jobs(
    session: Session, run_id: str, ids: Sequence[int], now_ms: int
) -> list[int]:
    """Lease chosen jobs; return the tokens of those that were leased.

    Raises:
        StoreRefused: the counter of tokens is damaged.
    """
    tokens = take_tokens(session, len(ids))
    granted = session.run(
        "lease_jobs",
        tokens=as_json_object(zip(ids, tokens, strict=True)),
        run_id=run_id,
        now_ms=now_ms,
    )
    return tokens[:granted]


def take_tokens(session: Session, count: int) -> list[int]:
    """Return fresh tokens: a counter, with random bits below it.

    The counter makes them increase; the random bits keep a token from being granted
    twice after the store was restored from a backup.

    Raises:
        StoreRefused: the counter is damaged.
    """
    last: int | None = session.value("take_tokens", leases=count, most=TOKENS_MAX)
    if last is None:
        raise StoreRefused(
            f"the counter 'tokens' in table jobpool_meta of {session.place} is missing "
            f"or out of range (expected 0 to {TOKENS_MAX}); nothing was leased. Stop "
            "every supervisor, then restore a backup, or set it above the number of "
            f"leases ever granted: `{_TOKENS_REMEDY}`"
        )
    # All at once: the system call costs more than the rest of a token.
    words = memoryview(os.urandom(4 * count)).cast("I")
    return [
        number << TOKEN_BITS | word >> (32 - TOKEN_BITS)
        for number, word in zip(range(last - count + 1, last + 1), words, strict=True)
    ]


def settle_plain(
    session: Session, plain: Sequence[Settlement], now: Moment
) -> Sequence[int]:
    """Settle plain successes, all or none; return the ids of those settled."""
    rows = [success_row(s, now) for s in plain]
    session.run("try_successes")
    if session.run("succeed_jobs", rows=as_json(rows)) < len(rows):
        session.run("undo_successes")
        session.run("end_successes")
        return ()
    session.run("end_successes")
    store_results(session, plain)
    return [s.id for s in plain]


def store_results(session: Session, accepted: Sequence[Settlement]) -> None:
    """Store results in a table of their own, so that a job's row stays small."""
    blobs = Blobs()
    rows = []
    for s in filter(has_result, accepted):
        if len(s.result or b"") > ALONE_BYTES:
            result_parts.store_result(session, s)
        else:
            rows.append((s.id, *blobs.add(s.result)))
    if rows:
        session.run("insert_results", rows=as_json(rows), blobs=blobs.joined())
