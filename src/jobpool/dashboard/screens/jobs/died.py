"""What is dead, and what is quarantined, by its reasons: the newest of each first.

Reasons differ in numbers: sizes, times, ids. Two that are the same but for those are
one reason, and the longest text between the numbers finds them again. Jobs are told
apart by what may be shown of them: else how many groups there are would tell how many
hidden texts differ.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from jobpool.core.application.redaction import HIDDEN
from jobpool.core.jobs.job import Job, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.screens.jobs.choice import Choice
from jobpool.dashboard.screens.jobs.listing import TONES, query_of
from jobpool.operations.jobs import Release, Retry
from jobpool.operations.redaction import Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.reading import Spot

_BUDGET_S = 0.1
GROUPS_MAX = 50
"""Who has more reasons than that reads them in a list."""
_WINDOW = 250
LOOKED_MAX = 5000
"""So many of the newest are told apart; a list has the others."""
REDACTED_MAX = 100
"""So many groups of kinds that hide something are told apart: each takes a read."""
_REDACT_S = 0.05
# What was hidden is no part that all of them have.
_NUMBER = re.compile(re.escape(HIDDEN) + r"|\d[\d.,:]*(?:[KMGT]iB|B|ms|[smhd])?\b")
_LEAST_TEXT = 6
"""A shorter text would find too much else."""
_TEXT_MAX = 100
_OF_REASON = 160


class Seed(NamedTuple):
    """What jobs that ended in the same way have in common."""

    kind: str
    outcome: Outcome | None
    error_class: str | None
    reason: str | None
    """Without its numbers; None: there was no time to redact it."""
    text: str
    """A part of the reason that all of them have; "": there is none."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that ended in the same way."""

    seed: Seed
    reason: str
    """The newest one's; "": there was no time to redact those of all."""
    jobs: int
    first_ms: int
    last_ms: int
    ref: str
    """Of the newest."""
    tenants: int
    choice: Choice


class Died(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows."""

    groups: tuple[Group, ...]
    looked: int
    is_all: bool


async def show_dead(asked: Asked) -> Response:
    """Answer with the page of dead jobs."""
    return await _show(asked, JobState.DEAD)


async def show_quarantined(asked: Asked) -> Response:
    """Answer with the page of quarantined jobs."""
    return await _show(asked, JobState.QUARANTINED)


async def _show(asked: Asked, state: JobState) -> Response:
    kind = asked.query.get("kind") or None
    died = await asked.read_alike(
        ("died", state, kind), lambda store: died_of(store, state, kind)
    )
    act = Release if state is JobState.QUARANTINED else Retry
    return asked.page(
        "died.html",
        state=state.value,
        tone=TONES[state],
        kind=kind,
        died=died,
        act=act,
        query=query_of,
        everything=Choice(states=(state.value,)),
    )


def died_of(store: Store, state: JobState, kind: str | None = None) -> Died:
    """Read the newest jobs of a state and tell them apart.

    Args:
        store: where they are.
        state: one of those that nothing leaves by itself.
        kind: only jobs of this kind.
    """
    which = Filter(states=(state,), kind=kind)
    until_s = time.monotonic() + _BUDGET_S
    found: list[Job] = []
    spot: Spot | None = None
    while True:
        looked = store.look(which, _WINDOW, spot, _WINDOW)
        found += looked.jobs
        spot = looked.spot
        is_late = time.monotonic() > until_s
        if spot is None or len(found) >= LOOKED_MAX or is_late:
            break
    redactor = Redactor(store, store.kinds())
    groups = groups_of(found, redactor, time.monotonic() + _REDACT_S)
    return Died(groups=tuple(groups), looked=len(found), is_all=spot is None)


def groups_of(
    jobs: Iterable[Job], redactor: Redactor, until_s: float = math.inf
) -> list[Group]:
    """Return jobs by how they ended, most first; at most `GROUPS_MAX`.

    Args:
        jobs: the latest end first.
        redactor: says what may be shown; of one job whose stored reason is alike, since
            that reads what it was given.
        until_s: after this moment of the monotonic clock nothing more is redacted.
    """
    stored: defaultdict[Seed, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.replaced_by is None:  # its successor is what matters
            stored[seed_of(job)].append(job)
    shown: defaultdict[Seed, list[Job]] = defaultdict(list)
    redacted = 0
    for seed, alike in sorted(stored.items(), key=_size, reverse=True):
        meant = seed
        if redactor.may_hide(seed.kind):
            is_told = redacted < REDACTED_MAX and time.monotonic() < until_s
            redacted += 1
            meant = (
                seed_of(redactor.of(alike[0]).job(alike[0]))
                if is_told
                else seed._replace(reason=None, text="")
            )
        shown[meant] += alike
    most = sorted(shown.items(), key=_size, reverse=True)[:GROUPS_MAX]
    return sorted(
        (_group(seed, alike, redactor) for seed, alike in most),
        key=lambda one: (-one.jobs, -one.last_ms),
    )


def _size(one: tuple[Seed, Sequence[Job]]) -> int:
    return len(one[1])


def seed_of(job: Job) -> Seed:
    """Return what a job has in common with those that ended as it did."""
    reason = (job.reason or job.error_class or "").strip()[:_OF_REASON]
    parts = _NUMBER.split(reason)
    longest = max(parts, key=len).strip()[:_TEXT_MAX]
    return Seed(
        kind=job.kind,
        outcome=job.outcome,
        error_class=job.error_class,
        reason="#".join(parts),
        text=longest if job.reason and len(longest) >= _LEAST_TEXT else "",
    )


def choice_like(seed: Seed, state: JobState) -> Choice:
    """Return the choice of all jobs that have ended so."""
    return Choice(states=(state.value,)).with_given(
        kind=seed.kind,
        outcome=None if seed.outcome is None else seed.outcome.value,
        error_class=seed.error_class,
        text=seed.text or None,
    )


def _group(seed: Seed, alike: Sequence[Job], redactor: Redactor) -> Group:
    newest = max(alike, key=_end_ms)
    ends_ms = [_end_ms(job) for job in alike]
    shown = redactor.of(newest).job(newest)
    reason = shown.reason or shown.error_class or "without a reason"
    return Group(
        seed=seed,
        reason="" if seed.reason is None else reason,
        jobs=len(alike),
        first_ms=min(ends_ms),
        last_ms=max(ends_ms),
        ref=newest.ref,
        tenants=len({job.tenant for job in alike if job.tenant is not None}),
        choice=choice_like(seed, newest.state),
    )


def _end_ms(job: Job) -> int:
    return job.finished_at_ms or job.created_at_ms
