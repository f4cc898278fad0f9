"""What people do to many jobs at once: by a filter, at a rate, with canaries first."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.dashboard.actions.fields import size
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.screens.jobs.bulk import plan_of, show_plan
from jobpool.dashboard.screens.jobs.choice import (
    Choice,
    choice_of,
    filter_of,
    words_of,
)
from jobpool.errors import ConfigError, Forbidden, UsageError
from jobpool.operations.jobs import Cancel, JobsAction, Release, Retry, StopBulk
from jobpool.operations.selection import Selection

_PER_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MOST = 1_000_000
_SOME = 10


async def retry(asked: Asked) -> Response:
    """Run all jobs of a choice again."""
    return await _begin(asked, Retry)


async def release(asked: Asked) -> Response:
    """Put all jobs of a choice back in line."""
    return await _begin(asked, Release)


async def cancel(asked: Asked) -> Response:
    """Cancel all jobs of a choice."""
    return await _begin(asked, Cancel)


async def stop(asked: Asked) -> Response:
    """Let what is under way end before its next step."""
    form = await asked.form()
    bulk = asked.served.bulks.get(form.get("name", ""))
    if bulk is None:
        if not asked.may(StopBulk):
            raise Forbidden(f"to {StopBulk.name} it takes another role; it goes on")
        raise UsageError(
            "this dashboard knows no such action: it was restarted since, or the "
            "action is over; the audit trail says what was done"
        )
    if not bulk.is_over or not asked.may(StopBulk):
        action = StopBulk(
            bulk=bulk.action, begun_by=bulk.who, end=bulk.stop, note=form.get("note")
        )
        await asked.operate(action)
    return asked.go("bulk", name=bulk.name)


async def _begin(asked: Asked, act: type[JobsAction]) -> Response:
    form = await asked.form()
    query = ImmutableMultiDict(parse_qsl(form.get("choice", "")))
    choice = choice_of(query)
    try:
        action = await _action(asked, act, choice, form)
    except UsageError as error:
        return await show_plan(asked, act, choice, form, str(error))
    principal = asked.principal
    if principal is None or not asked.may(act):
        await asked.operate(action)  # which refuses, and writes that down
        raise Forbidden(f"to {act.name} takes another role; nothing was changed")
    if grown := await _grown(asked, act, choice, form):
        return await show_plan(asked, act, choice, form, grown)
    once = form.get("once", "")
    bulk = asked.served.bulks.begin(principal, action, words_of(choice), once)
    return asked.go("bulk", name=bulk.name)


async def _grown(
    asked: Asked, act: type[JobsAction], choice: Choice, form: dict[str, str]
) -> str:
    """Return that far more jobs match than a form's page has counted; "": not so.

    Some more are no surprise while jobs go on dying; twice as many are.
    """
    counted = _whole(form.get("counted", ""))
    if not counted:
        return ""
    now_ms = SystemClock().utc_ms()
    plan = await asked.reading.read_at_length(
        lambda store: plan_of(store, act, choice, now_ms)
    )
    if plan.jobs <= 2 * counted + _SOME:
        return ""
    least = "" if plan.is_all else "at least "
    return (
        f"{least}{plan.jobs:,} jobs match by now, and {counted:,} did when they were "
        "counted; nothing was changed: do it again if you mean all of them"
    )


async def _action(
    asked: Asked, act: type[JobsAction], choice: Choice, form: dict[str, str]
) -> JobsAction:
    """Return the action that a form asks for.

    Raises:
        UsageError: it cannot be.
    """
    if choice.wrong:
        raise UsageError(f"{choice.wrong}; nothing was changed")
    if wrong := [one for one in choice.states if one not in act.states]:
        raise UsageError(
            f"only {', '.join(act.states)} jobs can be {act.past}, and {wrong[0]} ones "
            "are chosen as well; nothing was changed"
        )
    if not choice.states:
        raise UsageError("no state is chosen; nothing was changed")
    now_ms = SystemClock().utc_ms()
    which = await asked.reading.read_at_length(
        lambda store: filter_of(choice, store, now_ms)
    )
    canary = _count(form, "canary")
    stop_after = _count(form, "stop_after")
    more: dict[str, Any] = {}
    if canary is not None and act is not Cancel:
        more = {"canary": canary, "stop_after": stop_after or 1}
        if more["stop_after"] > canary:
            raise UsageError(
                f"it stops after at most as many failures as there are canaries, "
                f"{canary:,}; nothing was changed"
            )
    if act is Release:
        more["memory_bytes"] = _memory_bytes(form)
    return act(
        jobs=Selection(which=which, shown=choice.states),
        per_s=_rate(form.get("rate", ""), form.get("per", "s")),
        note=form.get("note"),
        **more,
    )


def _memory_bytes(form: dict[str, str]) -> int | None:
    try:
        return size(form, "memory")
    except ConfigError as error:
        raise UsageError(f"{error}; nothing was changed") from None


def _rate(text: str, per: str) -> float | None:
    """Return jobs per second; None: as fast as it can be."""
    text = text.strip()
    if not text:
        return None
    count = _whole(text)
    if not 0 < count <= _MOST or per not in _PER_S:
        raise UsageError(
            f"the rate: expected a whole number of 1 to {_MOST:,}, or nothing, got "
            f"{text[:20]!r}; nothing was changed"
        )
    return count / _PER_S[per]


def _count(form: dict[str, str], name: str) -> int | None:
    text = form.get(name, "").strip()
    if not text:
        return None
    count = _whole(text)
    if not 0 < count <= _MOST:
        raise UsageError(
            f"{name.replace('_', ' ')}: expected a whole number of 1 to {_MOST:,}, or "
            f"nothing, got {text[:20]!r}; nothing was changed"
        )
    return count


def _whole(text: str) -> int:
    """Return a whole number; 0: it is none, or has too many digits."""
    is_one = text.isascii() and text.isdigit() and len(text) <= len(str(_MOST))
    return int(text) if is_one else 0
