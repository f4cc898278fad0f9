"""Moves a SQLite queue to PostgreSQL, as a whole or not at all.

Theory of operation. First the source is closed for good, by triggers that name the new
address, so that nothing changes while it is read. Its jobs are staged in tables of the
target's schema, one chunk a transaction; an interrupted move continues after the
highest staged id. One last transaction publishes everything, reads it back, and commits
only if counts and a checksum over every value equal the source's. It also leaves the
move's number in the target, by which a second call knows that the move is done.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from jobpool.core.formats import OLDEST
from jobpool.errors import ConfigError, StoreRefused
from jobpool.store.move.source import COMMITTING, COPYING, DONE, Note, Source
from jobpool.store.move.target import Target, put, take, take_flows, take_schedules
from jobpool.store.opening import open_store
from jobpool.store.postgres.connection.session import Session
from jobpool.store.statements.session import Row

_SQLITE = "sqlite:///"
OnProgress = Callable[[int, int], None]
"""Called with the number of jobs staged so far, and of all jobs."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a move."""

    source: str
    target: str
    jobs: int
    states: dict[str, int]
    """Jobs by state."""
    checksum: str | None
    """SHA-256 over every value that was moved; None: an earlier call has moved it."""
    spoilt: dict[int, str]
    """Damaged jobs, with what was wrong: they were repaired, and those that had not
    ended were moved as dead."""
    spoilt_flows: tuple[int, ...]
    """Flows with damaged rows: they were repaired; of those that had not ended nothing
    more begins."""


def move(
    source_url: str, target_url: str, on_progress: OnProgress | None = None
) -> Moved:
    """Move a queue, or continue a move that was interrupted.

    Args:
        source_url: ``sqlite:///…``, of a queue without an open run.
        target_url: ``postgresql://…``; its tables are created if they do not exist.
        on_progress: called after each chunk.

    Raises:
        ConfigError: not such URLs.
        StoreRefused: the source is in use, the target already has jobs with such ids
            or keys, or what was read back differs. Nothing shows in the target.
        FeatureHeldBack: older supervisors run on the target, which do not know what
            the source holds; nothing was changed.
        StoreUnavailable: call again to continue.
        OutcomeUnknown: call again to find out.
    """
    with _source(source_url) as source, _target(target_url) as target:
        if (least := source.least_format()) > OLDEST:
            with closing(open_store(target_url)) as store:
                store.require(least)
        note = source.close_queue(target.url)
        last_id, tokens, stale = source.counters()
        states = source.states()
        total = sum(states.values())
        checksum = None
        if note.step != DONE and target.prepare(note.id, source.url, last_id, tokens):
            states = _stage(
                source, target, note, total, on_progress or _ignore_progress
            )
            source.step(note, COMMITTING)
            try:
                checksum = _publish(source, target, note, states, stale)
            except StoreRefused:
                source.step(note, COPYING)  # It was certainly not committed.
                raise
        source.step(note, DONE)
        target.unstage(source.url)
        return Moved(
            source=source.url,
            target=target.url,
            jobs=total,
            states=states,
            checksum=checksum,
            spoilt=dict(sorted(source.fitter.damaged.items())),
            spoilt_flows=tuple(sorted(source.fitter.damaged_flows)),
        )


def abandon(source_url: str, target_url: str | None = None) -> str:
    """Abandon a move: the source accepts jobs again.

    Args:
        source_url: as for `move`.
        target_url: the move's target; what is staged there is dropped. Needed only
            when the move was interrupted in its last step.

    Returns:
        The source's URL.

    Raises:
        StoreRefused: no move has begun, or it is done.
    """
    with _source(source_url) as source:
        note = source.note()
        if note is None:
            raise StoreRefused(f"no move of {source.url} has begun; nothing to abandon")
        done = note.step == DONE
        if target_url is not None:
            with _target(target_url) as target:
                _check_address(source, note, target)
                with target.transaction() as session:
                    done = done or target.is_done(session, note.id)
                if not done:
                    target.unstage(source.url)
        elif note.step == COMMITTING:
            raise StoreRefused(
                f"the move of {source.url} to {note.address} was interrupted in its "
                "last step: give --to with that URL as well, so that its outcome can "
                "be checked"
            )
        if done:
            raise StoreRefused(
                f"the move of {source.url} to {note.address} is done: after abandoning "
                "it both would run the same jobs. Use the new URL"
            )
        source.reopen()
        return source.url


def _check_address(source: Source, note: Note, target: Target) -> None:
    if target.url != note.address:
        raise StoreRefused(
            f"{source.url} is being moved to {note.address}, not to {target.url}; "
            "give that URL"
        )


def _stage(
    source: Source, target: Target, note: Note, total: int, on_progress: OnProgress
) -> dict[str, int]:
    """Stage all jobs that are not staged yet; return how many there are by state."""
    states: Counter[str] = Counter()
    with target.transaction() as session:
        after = target.staged_to(session, note.id)
    for first, last in source.chunks():
        jobs = source.jobs(first, last)
        states.update(state for _, _, _, state, *_ in jobs)
        if last <= after:
            continue
        with target.transaction() as session:
            after = target.staged_to(session, note.id)
            if last > after:
                wanted = [row for row in jobs if row[0] > after]
                put(session, "move_stage_job", wanted)
                history = source.attempts(max(first, after), last)
                put(session, "move_stage_attempt", history)
        on_progress(states.total(), total)
    return dict(sorted(states.items()))


def _publish(
    source: Source, target: Target, note: Note, states: dict[str, int], stale: int
) -> str | None:
    """Commit the move; None: another call has done so in the meantime."""
    runs, kinds, pauses = source.runs_kinds_and_pauses()
    suspects, misfits, breakers = source.suspects_and_breakers()
    quotas, tenants = source.quotas_and_tenants()
    audit, sketches = source.audit_and_sketches()
    debounced = source.debounced()
    with target.transaction() as session:
        if target.is_done(session, note.id):
            return None
        target.staged_to(session, note.id)
        take(session, note.id, sum(states.values()), stale)
        for after, last in source.chunks():
            put(session, "move_take_output", source.outputs(after, last))
            later = source.jobs_later(after, last)
            put(session, "move_take_job_later", [(*row[1:], row[0]) for row in later])
        put(session, "move_take_run", runs)
        put(session, "move_take_kind", kinds)
        put(session, "move_take_pause", pauses)
        put(session, "move_take_suspect", suspects)
        put(session, "move_take_misfit", misfits)
        put(session, "move_take_breaker", breakers)
        put(session, "move_take_debounced", debounced)
        put(session, "move_take_meta", source.meta())
        put(session, "move_take_quota", quotas)
        put(session, "move_take_tenant", tenants)
        if quotas or tenants:
            session.run("bump_limits")
        put(session, "move_take_audit", audit)
        put(session, "move_take_sketch", sketches)
        take_schedules(session, *source.schedules_and_ticks())
        take_flows(session, *source.flows())
        return _verify(source, session, states)


def _verify(source: Source, session: Session, states: dict[str, int]) -> str:
    """Compare everything with what the target holds now; return the checksum."""
    found = {state.decode(): jobs for state, jobs in session.rows("move_taken_states")}
    given, taken = hashlib.sha256(), hashlib.sha256()
    for after, last in source.chunks():
        _digest(given, source.jobs(after, last))
        _digest(given, (row[1:] for row in source.attempts(after, last)))
        _digest(given, source.outputs(after, last))
        stretch = {"after": after, "last": last}
        _digest(taken, session.rows("move_taken_jobs", **stretch))
        _digest(taken, session.rows("move_taken_attempts", **stretch))
        _digest(taken, session.rows("move_taken_outputs", **stretch))
        _digest(given, source.jobs_later(after, last))
        _digest(taken, session.rows("move_taken_jobs_later", **stretch))
    if found != states or given.digest() != taken.digest():
        raise _differs(source, session, f"{found}, expected {states}")
    return given.hexdigest()


def _differs(source: Source, session: Session, what: str) -> StoreRefused:
    return StoreRefused(
        f"what was read back from {session.place} is not what {source.url} holds "
        f"({what}); nothing was moved. Abandon the move with "
        f"`jobpool move --from {source.url} --abandon` and start again"
    )


def _digest(digest: Any, rows: Iterable[Row]) -> None:
    for row in rows:
        digest.update(msgspec.msgpack.encode(row))


@contextmanager
def _source(url: str) -> Iterator[Source]:
    if not url.startswith(_SQLITE):
        raise ConfigError(
            "--from: only a SQLite queue can be moved; expected sqlite:/// and a path"
        )
    # Checks the file, its location and its schema, as for every command.
    store = open_store(url, create=False)
    path = store.url.removeprefix(_SQLITE)
    store.close()
    source = Source(path)
    try:
        yield source
    finally:
        source.close()


@contextmanager
def _target(url: str) -> Iterator[Target]:
    target = Target(url)
    try:
        yield target
    finally:
        target.close()


def _ignore_progress(staged: int, total: int) -> None:
    """Do nothing."""
    del staged, total
