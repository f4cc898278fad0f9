"""What many hosts have left behind: was a job lost, settled twice, run side by side?

The marks are the handlers' own, the rest is read from the database as an operator
would. One machine plays all hosts, so its clock is the server's clock.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Life(NamedTuple):
    """One attempt as its handler saw it, in milliseconds."""

    job: int
    token: int
    host: str
    began_ms: int
    last_ms: int
    is_whole: bool


class Taken(NamedTuple):
    """An attempt that another supervisor has settled as lost."""

    job: int
    token: int
    run: str
    at_ms: int


class History(NamedTuple):
    """Everything that the check needs."""

    acknowledged: Mapping[str, int]
    """Keys that the producer was told are stored, and their job ids."""
    jobs: Sequence[tuple[int, str, str, int]]
    """Id, key, state, attempt."""
    attempts: Sequence[tuple[int, int, int, str]]
    """Job, attempt, token, outcome: the unsuccessful ones."""
    taken: Sequence[Taken]
    lives: Sequence[Life]
    leases: Mapping[str, Sequence[tuple[int, int]]]
    """Run: when it was looked at, and until when its lease was published."""


def read_lives(lines: Iterable[str]) -> list[Life]:
    """Put the marks of each attempt together."""
    found: dict[int, list[tuple[str, int, str, int]]] = defaultdict(list)
    for line in lines:
        what, job, token, host, at_ms = line.split()
        found[int(token)].append((what, int(job), host, int(at_ms)))
    return [
        Life(
            job=marks[0][1],
            token=token,
            host=marks[0][2],
            began_ms=marks[0][3],
            last_ms=marks[-1][3],
            is_whole=marks[-1][0] == "stop",
        )
        for token, marks in found.items()
    ]


def overlaps(lives: Sequence[Life]) -> list[tuple[Life, Life]]:
    """Return the pairs of attempts of one job that lived at the same time."""
    by_job: dict[int, list[Life]] = defaultdict(list)
    for life in lives:
        by_job[life.job].append(life)
    return [
        (first, second)
        for attempts in by_job.values()
        for first, second in itertools.combinations(
            sorted(attempts, key=lambda life: life.began_ms), 2
        )
        if second.began_ms <= first.last_ms
    ]


def had_expired(history: History, life: Life) -> bool:
    """Say whether the store had let the attempt's lease run out before it was taken."""
    for taken in history.taken:
        if taken.token == life.token:
            seen = [
                until_ms
                for at_ms, until_ms in history.leases.get(taken.run, ())
                if at_ms <= taken.at_ms
            ]
            return bool(seen) and seen[-1] <= taken.at_ms
    return False


def problems(history: History, left: Sequence[int]) -> list[str]:
    """Return what is not as it must be, in words; empty: all is well."""
    by_key = {key: (job, state) for job, key, state, _ in history.jobs}
    said = [
        f"job {job} (key {key}) was acknowledged and is lost"
        for key, job in history.acknowledged.items()
        if by_key.get(key, (None,))[0] != job
    ]
    said += [
        f"job {job} is {state}"
        for job, _, state, _ in history.jobs
        if state != "succeeded"
    ]
    ends = Counter(job for job, *_ in history.attempts)
    said += [
        f"job {job} had {attempt} attempts, but {ends[job] + 1} were settled"
        for job, _, state, attempt in history.jobs
        if state == "succeeded" and ends[job] + 1 != attempt
    ]
    tokens = Counter(token for _, _, token, _ in history.attempts)
    said += [f"token {token} was settled twice" for token, n in tokens.items() if n > 1]
    settled = Counter(life.job for life in history.lives if life.is_whole)
    said += [
        f"job {job} succeeded, but no handler of it came to its end"
        for job, _, state, _ in history.jobs
        if state == "succeeded" and not settled[job]
    ]
    said += [
        f"job {first.job} ran on {first.host} until {first.last_ms} and on "
        f"{second.host} from {second.began_ms}, before the first lease had expired"
        for first, second in overlaps(history.lives)
        if not had_expired(history, first)
    ]
    if left:
        said.append(f"processes are left: {', '.join(map(str, left))}")
    return said


def recoveries_s(history: History) -> list[float]:
    """Return how long each job that was taken over had shown no life, in seconds."""
    last_ms = {life.token: life.last_ms for life in history.lives}
    return [
        max(0, one.at_ms - last_ms[one.token]) / 1000
        for one in history.taken
        if one.token in last_ms
    ]
