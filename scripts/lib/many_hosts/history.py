"""What many hosts have left behind, and what must not be found in it.

The marks are the handlers' own, the rest is read from the database as an operator
would. One machine plays all hosts, so its clock is the server's clock.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from support.site.service import Pause

SLACK_MS = 500
"""For a busy machine, on top of the margin by which a fence comes early."""
HARMLESS = frozenset({"lost", "interrupted"})
"""What harm to hosts, networks and servers may cost; no handler is at fault."""


class Job(NamedTuple):
    """A job as it stands in the end."""

    id: int
    key: str
    state: str
    attempt: int
    finished_at_ms: int | None


class Attempt(NamedTuple):
    """An attempt that was settled otherwise than as succeeded."""

    job: int
    attempt: int
    token: int
    outcome: str
    run: str
    at_ms: int


class Life(NamedTuple):
    """One attempt as its handler saw it, in milliseconds."""

    job: int
    token: int
    host: str
    began_ms: int
    last_ms: int
    is_whole: bool
    starts: int = 1


class Kill(NamedTuple):
    """A supervisor that was killed."""

    run: str
    at_ms: int
    is_calm: bool = False
    """All was well otherwise, and nobody else of its host was there to take over."""


class History(NamedTuple):
    """Everything that the check needs."""

    acknowledged: Mapping[str, int]
    """Keys that the producer was told are stored, and their job ids: all of them."""
    jobs: Sequence[Job]
    attempts: Sequence[Attempt]
    lives: Sequence[Life]
    leases: Mapping[str, Sequence[tuple[int, int]]]
    """Run: when it was looked at, and until when its lease was published."""
    holders: Mapping[int, str]
    """Token: the run that held the lease."""
    kills: Sequence[Kill]
    pauses: Sequence[Pause]
    takeover_ms_max: int
    """From the kill of a host in calm weather to the end of its last lease."""
    refused: int
    """Acknowledgements under a superseded token that the store has counted."""

    @property
    def taken(self) -> list[Attempt]:
        """The attempts that another supervisor has settled as lost."""
        return [one for one in self.attempts if one.outcome == "lost"]


def read_lives(lines: Iterable[str]) -> list[Life]:
    """Put the marks of each attempt together."""
    found: dict[tuple[int, int], list[tuple[str, str, int]]] = defaultdict(list)
    for line in lines:
        what, job, token, host, at_ms = line.split()
        found[int(token), int(job)].append((what, host, int(at_ms)))
    return [
        Life(
            job=job,
            token=token,
            host=marks[0][1],
            began_ms=marks[0][2],
            last_ms=marks[-1][2],
            is_whole=marks[-1][0] == "stop",
            starts=sum(what == "start" for what, *_ in marks),
        )
        for (token, job), marks in found.items()
    ]


def overlaps(lives: Sequence[Life]) -> list[tuple[Life, Life]]:
    """Return the pairs of attempts of one job that lived at the same time.

    The one whose lease was granted first comes first.
    """
    by_job: dict[int, list[Life]] = defaultdict(list)
    for life in sorted(lives, key=lambda life: life.token):
        by_job[life.job].append(life)
    return [
        (first, second)
        for attempts in by_job.values()
        for first, second in itertools.combinations(attempts, 2)
        if second.began_ms <= first.last_ms and first.began_ms <= second.last_ms
    ]


def takeovers_ms(history: History, *, is_calm: bool) -> dict[Kill, int | None]:
    """Return for each kill how long it took until its last job was settled as lost.

    None: no job was, after that.
    """
    taken: dict[str, list[int]] = defaultdict(list)
    for one in history.taken:
        taken[one.run].append(one.at_ms)
    return {
        kill: max(
            (at_ms - kill.at_ms for at_ms in taken[kill.run] if at_ms >= kill.at_ms),
            default=None,
        )
        for kill in history.kills
        if kill.is_calm == is_calm
    }


def late_ends(history: History) -> list[Life]:
    """Return the handlers that came to their end after their job had been taken."""
    taken_ms = {one.token: one.at_ms for one in history.taken}
    return [
        life
        for life in history.lives
        if life.is_whole and life.last_ms > taken_ms.get(life.token, life.last_ms)
    ]


def problems(history: History, left: Sequence[int]) -> list[str]:
    """Return what is not as it must be, in words; empty: all is well.

    Args:
        history: what was found once everything had drained.
        left: processes that should have ended.
    """
    said = [
        *_kept(history),
        *_ended_once(history),
        *_tokens(history),
        *_overlapped(history),
        *_taken_too_early(history),
        *_ran_too_late(history),
        *_unfenced(history),
        *_taken_too_late(history),
        *_accepted_late(history),
    ]
    if left:
        said.append(f"processes are left: {', '.join(map(str, left))}")
    return said


def _kept(history: History) -> Iterator[str]:
    """What was acknowledged is there, and nothing else."""
    stored = {job.id: job.key for job in history.jobs}
    for key, job_id in history.acknowledged.items():
        if stored.get(job_id) != key:
            yield f"job {job_id} (key {key}) was acknowledged and is lost"
    for job in history.jobs:
        if history.acknowledged.get(job.key) != job.id:
            yield f"job {job.id} (key {job.key}) is there, but nobody enqueued it"


def _ended_once(history: History) -> Iterator[str]:
    """Each job has succeeded, after attempts that add up and are nobody's fault."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for one in history.attempts:
        numbers[one.job].append(one.attempt)
        if one.outcome not in HARMLESS:
            yield f"attempt {one.attempt} of job {one.job} is {one.outcome}"
    ended = {life.job for life in history.lives if life.is_whole}
    for job in history.jobs:
        if job.state != "succeeded":
            yield f"job {job.id} is {job.state}"
            continue
        settled = sorted(numbers[job.id])
        if settled != list(range(1, job.attempt)):
            yield (
                f"job {job.id} succeeded in attempt {job.attempt}, but the attempts "
                f"settled before are {settled}"
            )
        if job.id not in ended:
            yield f"job {job.id} succeeded, but no handler of it came to its end"


def _tokens(history: History) -> Iterator[str]:
    """A token is granted once, begins once and ends once; later ones are greater."""
    for token, count in Counter(one.token for one in history.attempts).items():
        if count > 1:
            yield f"token {token} was settled {count} times"
    for token, count in Counter(life.token for life in history.lives).items():
        if count > 1:
            yield f"token {token} ran {count} jobs"
    for life in history.lives:
        if life.starts != 1:
            yield f"token {life.token} of job {life.job} began {life.starts} times"
    last: dict[int, Attempt] = {}
    for one in sorted(history.attempts, key=lambda one: (one.job, one.attempt)):
        if one.job in last and one.token < last[one.job].token:
            yield (
                f"job {one.job} had token {last[one.job].token} in attempt "
                f"{last[one.job].attempt} and {one.token} in attempt {one.attempt}"
            )
        last[one.job] = one


def _overlapped(history: History) -> Iterator[str]:
    """Two attempts of a job live at once only if the first lease had run out."""
    taken = {one.token: one for one in history.taken}
    for first, second in overlaps(history.lives):
        if first.token not in taken or not _had_expired(history, taken[first.token]):
            yield (
                f"job {first.job} ran on {first.host} until {first.last_ms} and on "
                f"{second.host} from {second.began_ms}, before the first lease had "
                "expired"
            )


def _taken_too_early(history: History) -> Iterator[str]:
    """Nobody takes a job from a run whose lease holds, unless that was killed."""
    killed_ms = {kill.run: kill.at_ms for kill in history.kills}
    for one in history.taken:
        is_dead = one.run in killed_ms and killed_ms[one.run] <= one.at_ms
        if not is_dead and not _had_expired(history, one):
            yield (
                f"job {one.job} was taken from run {one.run} at {one.at_ms}, which "
                "lived and whose lease had not expired"
            )


def _had_expired(history: History, taken: Attempt) -> bool:
    """Say whether the store had let the lease run out before the job was taken."""
    seen = [
        until_ms
        for at_ms, until_ms in history.leases.get(taken.run, ())
        if at_ms <= taken.at_ms
    ]
    return bool(seen) and seen[-1] <= taken.at_ms


def _ran_too_late(history: History) -> Iterator[str]:
    """No attempt begins once its lease was taken, or its job has succeeded."""
    taken_ms = {one.token: one.at_ms for one in history.taken}
    finished_ms = {job.id: job.finished_at_ms for job in history.jobs}
    for life in history.lives:
        if _paused_until_ms(history, life.host, life.began_ms) is not None:
            continue
        if life.began_ms > taken_ms.get(life.token, life.began_ms):
            yield (
                f"job {life.job} began on {life.host} at {life.began_ms}, after its "
                f"lease had been taken at {taken_ms[life.token]}"
            )
        done_ms = finished_ms.get(life.job)
        if done_ms is not None and life.began_ms > done_ms:
            yield (
                f"job {life.job} began on {life.host} at {life.began_ms}, after it "
                f"had ended at {done_ms}"
            )


def _unfenced(history: History) -> Iterator[str]:
    """No handler outlives its run's lease, unless its supervisor was stopped then."""
    lapses = {run: _lapses(samples) for run, samples in history.leases.items()}
    for life in history.lives:
        lapsed = lapses.get(history.holders.get(life.token, ""), {})
        for until_ms, seen_ms in lapsed.items():
            paused_ms = _paused_until_ms(history, life.host, until_ms)
            allowed_ms = max(until_ms, paused_ms or 0) + SLACK_MS
            if life.began_ms < seen_ms - SLACK_MS and life.last_ms > allowed_ms:
                yield (
                    f"job {life.job} lived on {life.host} until {life.last_ms}, but "
                    f"its lease ended at {until_ms}"
                )


def _lapses(samples: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return when a lease ended unrenewed, and when that was last seen to be so."""
    return {
        until_ms: at_ms for at_ms, until_ms in samples if until_ms + SLACK_MS < at_ms
    }


def _paused_until_ms(history: History, host: str, at_ms: int) -> int | None:
    """Return until when a host's supervisor was stopped, if it was about then."""
    for pause in history.pauses:
        is_near = pause.from_ms - SLACK_MS <= at_ms <= pause.until_ms + SLACK_MS
        if pause.host == host and is_near:
            return pause.until_ms
    return None


def _taken_too_late(history: History) -> Iterator[str]:
    """In calm weather a killed host's jobs are free within the bound."""
    for kill, took_ms in takeovers_ms(history, is_calm=True).items():
        if took_ms is None:
            yield f"run {kill.run} was killed at {kill.at_ms}, and no job of it taken"
        elif took_ms > history.takeover_ms_max:
            yield (
                f"run {kill.run} was killed at {kill.at_ms}, and its jobs were free "
                f"only after {took_ms} ms, expected {history.takeover_ms_max} at most"
            )


def _accepted_late(history: History) -> Iterator[str]:
    """Every acknowledgement that came too late was refused, and counted."""
    killed = {kill.run for kill in history.kills}
    heard = {one.token for one in history.taken if one.run not in killed}
    late = sum(life.token in heard for life in late_ends(history))
    if late > history.refused:
        yield (
            f"handlers that ended after their jobs were taken: {late}, but "
            f"acknowledgements refused: {history.refused}"
        )
