"""What would be done to all jobs of a choice, and how far what is done has come."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.screens.jobs.choice import (
    Choice,
    choice_of,
    filter_of,
    words_of,
)
from jobpool.dashboard.screens.jobs.listing import Line, is_shown, line_of
from jobpool.operations.jobs import Cancel, JobsAction, Release, Retry
from jobpool.operations.redaction import Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.operating import Filter
from jobpool.store.records.reading import Spot

ACTS: Mapping[str, type[JobsAction]] = {
    act.name: act for act in (Retry, Release, Cancel)
}
SHOWN = 10
_COUNT_MOST = 10_000
_BUDGET_S = 0.1
_WINDOW = 250
_ONCE_BYTES = 9


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done, as far as there was time to find out."""

    jobs: int
    is_all: bool
    """There are no more."""
    lines: tuple[Line, ...]
    """The first of them."""


async def show(asked: Asked) -> Response:
    """Answer with what would be done."""
    act = ACTS.get(asked.query.get("act", ""), Retry)
    choice = usual(choice_of(asked.request.query_params), act)
    return await show_plan(asked, act, choice, {})


async def show_plan(
    asked: Asked,
    act: type[JobsAction],
    choice: Choice,
    fields: Mapping[str, str],
    wrong: str = "",
) -> Response:
    """Answer with what would be done.

    Args:
        asked: the request.
        act: what is to be done.
        choice: to which jobs.
        fields: what was typed before.
        wrong: why that cannot be; "": nothing was typed yet.
    """

    def read(store: Store) -> Plan:
        return plan_of(store, act, choice, SystemClock().utc_ms())

    plan = await asked.reading.read(read)
    return asked.page(
        "bulk.html",
        status_code=400 if wrong else 200,
        act=act,
        choice=choice,
        words=words_of(choice),
        pairs=urlencode(choice.pairs),
        plan=plan,
        fields=fields,
        once=secrets.token_urlsafe(_ONCE_BYTES),
        wrong=wrong,
        has_canaries=act is not Cancel,
        has_memory=act is Release,
        wrong_states=[one for one in choice.states if one not in act.states],
        back=f"{asked.url('jobs')}?{urlencode(choice.pairs)}",
    )


async def show_running(asked: Asked) -> Response:
    """Answer with how far the bulks of this process are, or one of them."""
    bulks = asked.served.bulks
    named = bulks.get(asked.query.get("name", ""))
    shown = bulks.newest_first() if named is None else [named]
    return asked.page("bulks.html", bulks=shown, is_one=named is not None)


def usual(choice: Choice, act: type[JobsAction]) -> Choice:
    """Return a choice with the states that an action usually means, if it has none."""
    return choice if choice.states else choice.with_states(*act.usual)


def plan_of(store: Store, act: type[JobsAction], choice: Choice, now_ms: int) -> Plan:
    """Find the jobs to which an action would be applied; changes nothing.

    Args:
        store: where they are.
        act: the action.
        choice: which.
        now_ms: the time.
    """
    which: Filter = filter_of(choice, store, now_ms)
    meant = set(choice.states) & set(act.states)
    kinds = store.kinds()
    redactor = Redactor(store, kinds)
    limits = {kind.kind: kind.memory_bytes for kind in kinds}
    until_s = time.monotonic() + _BUDGET_S
    count, lines = 0, list[Line]()
    spot: Spot | None = None
    while meant:
        looked = store.look(which, _WINDOW, spot, _WINDOW)
        for job in looked.jobs:
            is_spared = act.spares_replaced and job.replaced_by is not None
            if not is_shown(job, choice) or job.shown_state not in meant:
                continue
            if is_spared or job.is_erased or not redactor.shows(job, which.text):
                continue
            count += 1
            if len(lines) < SHOWN:
                shown = redactor.of(job).job(job)
                lines.append(line_of(shown, limits.get(job.kind), now_ms))
        spot = looked.spot
        if spot is None or count >= _COUNT_MOST or time.monotonic() > until_s:
            break
    return Plan(jobs=count, is_all=spot is None, lines=tuple(lines))
