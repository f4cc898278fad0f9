"""Debouncing: jobs that share a unique text, so that no update is lost.

Theory of operation. What is enqueued changes the job that has the text, as long as
nothing of that job has run. Otherwise it becomes a job that waits for the text, of
which there is at most one; what is enqueued later changes that one. Whoever ends the
job that has the text, by whatever statement, passes it on (a trigger), and so lets the
waiting one go. Where a trigger cannot, because another transaction holds that job, or
because a row was deleted by hand, a search at intervals does (`release_followers`).

Where there are many writers, producers of the same text take turns until each one's
commit: what one has stored the next one sees. They never lock a job that runs, so that
no settlement waits for a producer's transaction, and a claim that is faster than a
change is seen: the statement that changes a job does so only if nothing of it has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from jobpool.core.jobs.job import (
    TIME_MAX_MS,
    Debounce,
    Enqueued,
    JobState,
    NewJob,
    OnConflict,
)
from jobpool.errors import StoreUnavailable
from jobpool.store.statements.limits import encoded_values
from jobpool.store.statements.parameters import Blobs, as_json
from jobpool.store.statements.session import Database, Session

TRIES = 5
"""How often a job that others have just changed is searched for again."""
_Text = tuple[str, str | None]
"""A kind, and a unique text of its jobs."""
_PLAIN = Debounce()


class _Admit(Protocol):
    def __call__(
        self, session: Session, jobs: Sequence[NewJob], *, may_wait: bool = False
    ) -> list[Enqueued | None]: ...


class Means(NamedTuple):
    """What a store has for it."""

    now_ms: int
    """The store's clock."""
    admit: _Admit
    """`Enqueueing._enter`."""
    put_payloads: Callable[[Session, Sequence[tuple[Any, ...]], bytes], None]
    """Stores changed jobs' payloads, where `revise_jobs` does not."""
    lock: str | None
    """The query by which producers of the same texts take turns, where there are many
    writers."""


class _Found(NamedTuple):
    """Who has a text, and who waits for it."""

    holder: int | None = None
    state: JobState | None = None
    is_open: bool = False
    """Nothing of the holder has run."""
    follower: int | None = None


class _Plan:
    """What is to be done about some jobs, by their places."""

    def __init__(self) -> None:
        self.created: list[int] = []
        """Nobody has their text."""
        self.following: list[int] = []
        """They are to wait."""
        self.changing: dict[int, int] = {}
        """They change these jobs."""
        self.holding: dict[int, int] = {}
        """They leave these jobs as they are, which must not begin before the commit."""
        self.kept: dict[int, Enqueued] = {}
        """They are answered already."""
        self.free: list[int] = []
        """Their text is to be passed on first."""

    def add(self, place: int, job: NewJob, found: _Found) -> None:
        """Plan one job."""
        revises = _of(job).revises
        if found.holder is None or found.state is None:
            (self.created if found.follower is None else self.free).append(place)
        elif found.follower is not None:
            (self.changing if revises else self.holding)[place] = found.follower
        elif found.is_open:
            (self.changing if revises else self.holding)[place] = found.holder
        elif revises:
            self.following.append(place)
        else:
            self.kept[place] = Enqueued(found.holder, created=False, state=found.state)


def is_debounced(jobs: Sequence[NewJob]) -> bool:
    """Say whether any of these jobs shares its unique text in a way of its own."""
    return any(job.debounce is not None for job in jobs)


def store_debounced(
    session: Session, jobs: Sequence[NewJob], means: Means
) -> list[Enqueued]:
    """Store checked jobs of which each is debounced, as if one after another.

    Raises:
        QueueFull: there is no room for them; the transaction must be rolled back.
        StoreUnavailable: others were faster, again and again; likewise.
    """
    texts = [(job.kind, job.unique) for job in jobs]
    if means.lock:
        session.rows(means.lock, rows=as_json(texts))
    answers: dict[int, Enqueued] = {}
    for places in _rounds(texts):
        left: Sequence[int] = places
        for _ in range(TRIES):
            answers |= _try(session, jobs, left, means)
            left = [place for place in left if place not in answers]
            if not left:
                break
        if left:
            raise StoreUnavailable(
                f"{len(left)} jobs met others with their unique text that came and "
                "went too fast; nothing was enqueued. Try again"
            )
    return [answers[place] for place in range(len(jobs))]


def _try(
    session: Session, jobs: Sequence[NewJob], places: Sequence[int], means: Means
) -> dict[int, Enqueued]:
    """Store those of the jobs whose text nobody else changes meanwhile."""
    plan = _Plan()
    found = _holders(
        session, [(jobs[place].kind, jobs[place].unique) for place in places]
    )
    for place, one in zip(places, found, strict=True):
        plan.add(place, jobs[place], one)
    answers = dict(plan.kept)
    if plan.free:
        session.rows("pass_texts_on", rows=_texts(jobs, plan.free))
    if plan.created:
        answers |= _create(session, jobs, plan.created, means)
    if plan.following:
        answers |= _follow(session, jobs, plan.following, means)
    if plan.changing:
        answers |= _change(session, jobs, plan.changing, means)
    if plan.holding:
        held = _states(session.rows("hold_open", ids=as_json(plan.holding.values())))
        answers |= {
            place: Enqueued(job_id, created=False, state=held[job_id])
            for place, job_id in plan.holding.items()
            if job_id in held
        }
    return answers


def _create(
    session: Session, jobs: Sequence[NewJob], places: Sequence[int], means: Means
) -> dict[int, Enqueued]:
    stored = means.admit(session, [jobs[place] for place in places])
    made = {
        place: one
        for place, one in zip(places, stored, strict=True)
        if one is not None  # else another producer, who took no turn, was faster
    }
    notes = [
        _note(jobs[place], one.id)
        for place, one in made.items()
        if _of(jobs[place]).until_start
    ]
    if notes:
        session.run("note_debounced", rows=as_json(notes))
    return made


def _follow(
    session: Session, jobs: Sequence[NewJob], places: Sequence[int], means: Means
) -> dict[int, Enqueued]:
    """Store jobs that wait; they have their text in a table of its own."""
    session.run("clear_waits", rows=_texts(jobs, places))
    nameless = [replace(jobs[place], unique=None) for place in places]
    stored = means.admit(session, nameless, may_wait=True)
    made = {
        place: Enqueued(one.id, created=True, state=JobState.WAITING)
        for place, one in zip(places, stored, strict=True)
        if one is not None
    }
    session.run("begin_waiting", ids=as_json(one.id for one in made.values()))
    notes = [_note(jobs[place], one.id, waits=True) for place, one in made.items()]
    session.run("note_debounced", rows=as_json(notes))
    return made


def _change(
    session: Session, jobs: Sequence[NewJob], chosen: dict[int, int], means: Means
) -> dict[int, Enqueued]:
    blobs = Blobs()
    rows, parts = [], []
    for place, job_id in chosen.items():
        part = blobs.add(jobs[place].payload)
        rows.append((*_changed_row(job_id, jobs[place], means.now_ms), *part))
        parts.append((job_id, *part))
    found = session.rows("revise_jobs", rows=as_json(rows), blobs=blobs.joined())
    changed = _states(found)
    if not changed:
        return {}
    done = [part for part in parts if part[0] in changed]
    means.put_payloads(session, done, blobs.joined())
    session.run("forget_misfits", ids=as_json(changed))
    places = [place for place, job_id in chosen.items() if job_id in changed]
    notes = [_note(jobs[place], chosen[place], again=True) for place in places]
    session.run("note_debounced", rows=as_json(notes))
    return {
        place: Enqueued(
            chosen[place],
            created=False,
            state=changed[chosen[place]],
            replaced=True,
            postponed=_of(jobs[place]).on_conflict is OnConflict.POSTPONE,
        )
        for place in places
    }


def release_followers(database: Database, after_id: int, limit: int) -> tuple[int, int]:
    """Let jobs go that wait for a text that nobody has.

    Args:
        database: the store's.
        after_id: those of these jobs whose ids are higher are looked at.
        limit: how many at most.

    Returns:
        The id to go on after; 0: from the beginning. And how many were let go, or had
        been counted as waiting and were not.
    """
    with database.reading() as session:
        rows = session.rows("waiting_texts", after_id=after_id, limit=limit)
    forgotten = as_json((kind, text) for _, kind, text, is_over in rows if is_over)
    count = sum(bool(is_over) for *_, is_over in rows)
    if count:
        with database.writing() as session:
            session.rows("pass_texts_on", rows=forgotten)
            session.run("clear_waits", rows=forgotten)
    return (rows[-1][0] if len(rows) == limit else 0), count


def _rounds(texts: Sequence[_Text]) -> list[list[int]]:
    """Return the places of jobs in rounds, so that no round names a text twice."""
    rounds: list[list[int]] = []
    seen: Counter[_Text] = Counter()
    for place, text in enumerate(texts):
        if seen[text] == len(rounds):
            rounds.append([])
        rounds[seen[text]].append(place)
        seen[text] += 1
    return rounds


def _holders(session: Session, texts: Sequence[_Text]) -> list[_Found]:
    found = [_Found()] * len(texts)
    for place, holder, state, is_open, follower in session.rows(
        "text_holders", rows=as_json(texts)
    ):
        known = None if state is None else JobState(state.decode())
        found[place] = _Found(holder, known, bool(is_open), follower)
    return found


def _states(rows: Sequence[tuple[Any, ...]]) -> dict[int, JobState]:
    return {job_id: JobState(state.decode()) for job_id, state in rows}


def _texts(jobs: Sequence[NewJob], places: Sequence[int]) -> str:
    return as_json((jobs[place].kind, jobs[place].unique) for place in places)


def _note(
    job: NewJob, job_id: int, *, waits: bool = False, again: bool = False
) -> tuple[Any, ...]:
    """Return a row for `note_debounced`."""
    debounce = _of(job)
    is_later = again and debounce.on_conflict is OnConflict.POSTPONE
    flags = map(int, (debounce.until_start, waits, again, is_later))
    return job_id, job.kind, job.unique, *flags


def _changed_row(job_id: int, job: NewJob, now_ms: int) -> tuple[Any, ...]:
    """Return a row for `revise_jobs`, without its payload."""
    debounce, run_at_ms = _of(job), None
    if debounce.on_conflict is OnConflict.POSTPONE:
        run_at_ms = job.run_at_ms
        if run_at_ms is None:
            run_at_ms = min(now_ms + job.delay_ms, TIME_MAX_MS)
    expires_in_ms = job.expires_in_ms
    return (
        job_id,
        job.pool,
        job.priority,
        job.tenant,
        job.max_attempts,
        job.timeout_s,
        job.memory_bytes,
        run_at_ms,
        debounce.postpone_max_ms,
        None if expires_in_ms is None else now_ms + expires_in_ms,
        job.codec,
        job.lane,
        None if job.quota_values is None else encoded_values(job.quota_values),
        job.trace,
    )


def _of(job: NewJob) -> Debounce:
    return job.debounce or _PLAIN
