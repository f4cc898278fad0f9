"""The list of jobs: what is chosen in its URL, a page of it, and counts by state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import Job
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.screens.jobs.choice import (
    OUTCOMES,
    Choice,
    choice_of,
    filter_of,
    spot_of,
    spot_text,
)
from jobpool.operations.jobs import Cancel, Release, Retry
from jobpool.operations.redaction import Redactor
from jobpool.store.protocol import Store
from jobpool.words.jobs.line import memory_bytes, news, ran_s
from jobpool.words.jobs.states import STATES

PAGE = 50
TALLY_MOST = 10_000
"""Jobs of a state are counted up to here: what is beyond makes no other page."""
_BUDGET_S = 0.1
"""After so long a page shows what was found, and where to go on."""
_WINDOW = 500
TONES: Mapping[str, str] = {
    "leased": "accent",
    "succeeded": "good",
    "retryable": "warn",
    "dead": "bad",
    "quarantined": "aside",
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A job in the list, redacted."""

    job: Job
    tone: str
    news: str
    ran_s: float | None
    memory_bytes: int | None
    limit_bytes: int | None
    at_ms: int
    """When it ended; else when it was enqueued."""

    @property
    def filled(self) -> float | None:
        """Its memory as a share of its limit."""
        if self.memory_bytes is None or not self.limit_bytes:
            return None
        return self.memory_bytes / self.limit_bytes


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list."""

    lines: tuple[Line, ...]
    next: str
    """Where the next page begins; "": there is none."""
    is_cut: bool
    """There was no time to look further: there may be more before the next page."""


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    choice = choice_of(asked.request.query_params)
    return await show_choice(asked, choice, "jobs", "Jobs")


async def show_choice(asked: Asked, choice: Choice, route: str, title: str) -> Response:
    """Answer with the list of what was chosen."""
    before = asked.query.get("before")

    def listed(store: Store) -> Listed:
        return listed_of(store, choice, before, SystemClock().utc_ms())

    found, counts = await asyncio.gather(
        asked.read_alike(("jobs", choice.wrong, *choice.pairs, before), listed),
        asked.read_alike("tally", _tally),
    )
    return asked.page(
        "jobs.html",
        basis=(found, counts),
        title=title,
        listed=found,
        counts=counts,
        most=TALLY_MOST,
        choice=choice,
        states=STATES,
        outcomes=OUTCOMES,
        query=query_of,
        is_first=before is None,
        here=lambda chosen, **more: f"{asked.url(route)}{query_of(chosen, **more)}",
        acts=[act for act in (Retry, Release, Cancel) if applies(act, choice)],
    )


def applies(act: type[Retry | Release | Cancel], choice: Choice) -> bool:
    """Say whether an action is worth a button: it applies to all that is chosen."""
    return bool(choice.states) and set(choice.states) <= set(act.states)


def query_of(choice: Choice, **more: str) -> str:
    """Return a choice as the part of a URL behind its path."""
    pairs = [*choice.pairs, *more.items()]
    return f"?{urlencode(pairs)}" if pairs else ""


def listed_of(store: Store, choice: Choice, before: str | None, now_ms: int) -> Listed:
    """Read a page of jobs: at most as long as a page may take.

    Args:
        store: where they are.
        choice: which.
        before: where the page before has stopped.
        now_ms: the time.
    """
    which = filter_of(choice, store, now_ms)
    kinds = store.kinds()
    redactor = Redactor(store, kinds)
    spot = spot_of(before, store)
    until_s = time.monotonic() + _BUDGET_S
    found: list[Job] = []
    while True:
        looked = store.look(which, PAGE - len(found), spot, _WINDOW)
        found += [
            job
            for job in looked.jobs
            if is_shown(job, choice) and redactor.shows(job, which.text)
        ]
        spot = looked.spot
        is_late = time.monotonic() > until_s
        if spot is None or len(found) >= PAGE or is_late:
            break
    limits = {kind.kind: kind.memory_bytes for kind in kinds}
    shown = [redactor.of(job).job(job) for job in found]
    return Listed(
        lines=tuple(line_of(job, limits.get(job.kind), now_ms) for job in shown),
        next="" if spot is None else spot_text(spot, store),
        is_cut=spot is not None and len(found) < PAGE,
    )


def is_shown(job: Job, choice: Choice) -> bool:
    """Say whether a job is in one of the chosen states, as these are shown."""
    return not choice.states or job.shown_state in choice.states


def line_of(job: Job, limit_bytes: int | None, now_ms: int) -> Line:
    """Return a job's line.

    Args:
        job: redacted.
        limit_bytes: the memory limit of its kind; None: it is not known.
        now_ms: the time.
    """
    ended_ms = job.finished_at_ms
    return Line(
        job=job,
        tone=TONES.get(job.shown_state, ""),
        news=news(job, now_ms),
        ran_s=ran_s(job, now_ms),
        memory_bytes=memory_bytes(job),
        limit_bytes=job.memory_bytes or limit_bytes,
        at_ms=job.created_at_ms if ended_ms is None else ended_ms,
    )


def _tally(store: Store) -> dict[str, int]:
    return store.tally(TALLY_MOST)
