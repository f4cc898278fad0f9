"""`jobpool logs`: what jobs have written to stdout and stderr, and what they write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import click

from jobpool.cli.context import opened, own_sources
from jobpool.cli.flags import JobName, Name, store_flags, unredacted_flag
from jobpool.cli.jobs.selection import id_of
from jobpool.core.application.codec import is_encoded
from jobpool.core.jobs.job import FINISHED, Job, JobState
from jobpool.core.safe_text import lines
from jobpool.errors import JobNotFound
from jobpool.operations.redaction import Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter

EVERY_S = 0.5
"""Running attempts write what they have said about once a second."""
_TEXT_MAX = 100_000
_LEASED_MAX = 1000
_Key = tuple[int, int]
"""A job and one of its attempts."""
_LOST = "[… lines that were not seen in time]"


@click.command()
@click.argument("job_id", metavar="[ID]", type=JobName(), required=False)
@click.option(
    "--kind",
    type=Name("kind"),
    metavar="KIND",
    help="Instead of ID: the newest jobs of this kind.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="With --kind: of at most this many jobs.",
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Go on with what running jobs write: until the job has ended, or Ctrl-C.",
)
@unredacted_flag
@store_flags
def logs(
    *,
    job_id: int | str | None,
    kind: str | None,
    limit: int,
    follow: bool,
    unredacted: bool,
    store: str | None,
    config: str | None,
) -> None:
    """Print what jobs have written to stdout and stderr.

    Of attempts that did not succeed, and of successful ones where `keep_output` is
    "all", the last part is stored; of running ones the last 8 KiB, as of a second ago.
    """
    if (job_id is None) == (kind is None):
        raise click.UsageError("name a job by its ID, or a kind with --kind")
    with opened(own_sources(store, config)) as found:
        redactor = Redactor(found, found.kinds(), is_off=unredacted)
        if kind is not None:
            _of_kind(found, redactor, kind, limit, follow=follow)
            return
        number = id_of(found, job_id) if job_id is not None else 0
        job = found.get(number)
        if job is None:
            raise JobNotFound(f"there is no job {job_id}; it may have been pruned")
        said = _stored(found, redactor, job, prefix="", live=not follow)
        if not said and not follow:
            click.echo(_nothing(job), err=True)
        if follow:
            jobs = partial(_unless_over, found, number)
            _follow(found, redactor, jobs, {number: said}, named=False)


def _of_kind(
    store: Store, redactor: Redactor, kind: str, limit: int, *, follow: bool
) -> None:
    """Print what the newest jobs of a kind have written, oldest of them first."""
    said = {
        job.id: _stored(store, redactor, job, prefix=f"{job.id} | ", live=not follow)
        for job in reversed(store.find(Filter(kind=kind), limit))
    }
    if follow:
        _follow(
            store,
            redactor,
            lambda: [one for one in store.leased(_LEASED_MAX) if one.kind == kind],
            said,
            named=True,
        )


def _stored(
    store: Store, redactor: Redactor, job: Job, *, prefix: str, live: bool
) -> set[int]:
    """Print what is stored of a job's attempts; return which have written anything.

    Args:
        store: has the job.
        redactor: hides what its kind hides.
        job: whose.
        prefix: begins each line.
        live: also what a running attempt has written so far.
    """
    texts = _ended(store, redactor, job)
    if live and job.state is JobState.LEASED:
        text = redactor.of(job).text(store.output(job.id)) or ""
        texts.setdefault(job.attempt, text)
    for _attempt, text in sorted(texts.items()):
        if job.codec is not None and is_encoded(text):
            _say(f"[encoded by {job.codec}]", prefix)
        else:
            _say(text, prefix)
    return {attempt for attempt, text in texts.items() if text}


def _ended(store: Store, redactor: Redactor, job: Job) -> dict[int, str]:
    """Return what is stored of attempts that have ended, by their numbers."""
    redaction = redactor.of(job)
    texts = {
        one.attempt: one.output or ""
        for one in redaction.attempts(store.attempts(job.id))
    }
    kept = redaction.kept(store.kept_output(job.id))
    if kept is not None:
        texts[kept.attempt] = kept.output or ""
    return texts


def _nothing(job: Job) -> str:
    """Return why nothing is shown."""
    why = ""
    if job.state is JobState.SUCCEEDED:
        why = '; of an attempt that succeeds it is kept with keep_output = "all"'
    return f"note: nothing is stored of what job {job.id} has written{why}"


def _unless_over(store: Store, job_id: int) -> list[Job] | None:
    """Return the job; None: it has ended, or is gone."""
    job = store.get(job_id)
    return None if job is None or job.state in FINISHED else [job]


def _follow(
    store: Store,
    redactor: Redactor,
    jobs: Callable[[], Sequence[Job] | None],
    said: dict[int, set[int]],
    *,
    named: bool,
) -> None:
    """Print what jobs write.

    Args:
        store: has the jobs.
        redactor: hides what their kinds hide.
        jobs: returns those that are followed; None: it is over.
        said: of which attempts all was printed, by job.
        named: each line begins with its job's number.
    """
    seen: dict[_Key, str] = {}
    states: dict[int, tuple[int, JobState]] = {}
    while (following := jobs()) is not None:
        for job_id in states.keys() - {job.id for job in following}:
            del states[job_id]
            _say_ends(store, redactor, job_id, said.pop(job_id), seen, named=named)
        for job in following:
            ended = said.setdefault(job.id, {*range(1, job.attempt)})
            if states.get(job.id) != (job.attempt, job.state):
                states[job.id] = job.attempt, job.state
                _say_ends(store, redactor, job.id, ended, seen, named=named)
            if job.state is not JobState.LEASED:
                continue
            text = redactor.of(job).text(store.output(job.id)) or ""
            key = job.id, job.attempt
            before = seen.get(key, "")
            # It may have ended meanwhile, and another attempt have begun.
            if text not in {"", before} and _runs_still(store, job):
                _say(added(before, text), _prefix(job.id, named))
                seen[key] = text
        time.sleep(EVERY_S)
    for job_id, ended in said.items():
        _say_ends(store, redactor, job_id, ended, seen, named=named)


def _runs_still(store: Store, job: Job) -> bool:
    """Say whether a job is still in the attempt in which it was found."""
    now = store.get(job.id)
    return now is not None and (now.state, now.attempt) == (job.state, job.attempt)


def _prefix(job_id: int, named: bool) -> str:  # noqa: FBT001 - passed on as it came
    return f"{job_id} | " if named else ""


def _say_ends(
    store: Store,
    redactor: Redactor,
    job_id: int,
    said: set[int],
    seen: dict[_Key, str],
    *,
    named: bool,
) -> None:
    """Print what a job's attempts that have ended wrote since they were looked at."""
    job = store.get(job_id)
    if job is not None:
        for attempt, text in sorted(_ended(store, redactor, job).items()):
            if attempt in said:
                continue
            said.add(attempt)
            before = seen.get((job_id, attempt), "")
            if text and not (job.codec is not None and is_encoded(text)):
                _say(added(before, text), _prefix(job_id, named))
    running = job.attempt if job is not None and job.state is JobState.LEASED else 0
    for key in [key for key in seen if key[0] == job_id and key[1] != running]:
        del seen[key]


def added(before: str, now: str) -> str:
    """Return what of a tail is new since it was last seen.

    The tail moves: what was seen may have left it at its beginning. Of an attempt that
    has ended a longer tail is stored: what was seen may be anywhere in it. Where
    nothing of it is left, some was not seen in time, and a line says so.
    """
    before = before.lstrip("\ufffd")  # a character that the tail has cut
    if (place := now.find(before)) >= 0:
        return now[place + len(before) :]
    for length in range(min(len(before), len(now)), 0, -1):
        if before.endswith(now[:length]):
            return now[length:]
    return f"{_LOST}\n{now}" if now else ""


def _say(text: str, prefix: str) -> None:
    """Print lines; what a terminal would obey is made harmless."""
    for line in _lines(text):
        click.echo(f"{prefix}{line}")


def _lines(text: str) -> Iterator[str]:
    shown = lines(text.rstrip("\n"), _TEXT_MAX)
    if shown:
        yield from shown.split("\n")
