"""What people do to a job whose arguments were wrong: replace it by one with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from jobpool.client.payload.published.replacing import (
    Replacing,
    arguments_of,
    replaced_by,
    updated_with,
)
from jobpool.core.config.settings import PAYLOAD_MAX_BYTES
from jobpool.core.safe_text import json_text
from jobpool.dashboard.actions.jobs import reveal_it
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.screens.jobs.one import found
from jobpool.errors import UsageError
from jobpool.operations.arguments.changes import MISSING, differences
from jobpool.operations.arguments.replay import Replay
from jobpool.operations.redaction import Redactor
from jobpool.operations.selection import Selection
from jobpool.store.protocol import Store

_ARGUMENTS = "the arguments"
_VALUE_MAX = 400
_EDITED_MAX = 50_000


class Now(NamedTuple):
    """A job's arguments, as they may be shown."""

    job: int
    kind: str
    text: str
    hides: bool
    """Some of it is hidden: then what is typed changes some arguments, by name."""


class Difference(NamedTuple):
    """One argument that would be another; "": it would not be there, or was not."""

    path: str
    was: str
    would_be: str


async def edit(asked: Asked) -> Response:
    """Show a job's arguments to be edited; that is written down first."""
    await reveal_it(asked, "arguments, to edit them")
    ref = asked.part("ref")
    now = await asked.reading.read_at_length(lambda store: _now(store, ref))
    typed = "{}" if now.hides else now.text
    return _form(asked, now, typed, "")


async def replay(asked: Asked) -> Response:
    """Show what would differ; or, if that was seen, replace the job."""
    form = await asked.form()
    ref, typed = asked.part("ref"), form.get("arguments", "")
    is_some = form.get("some") == "1"
    is_sure = form.get("sure") == "1"

    def plan(store: Store) -> Replay:
        return _action(store, ref, typed, is_some=is_some, note=form.get("note"))

    if not asked.may(Replay):  # refused, and that is written down
        await asked.operate(
            await asked.reading.read_at_length(
                lambda store: _action(store, ref, "", is_some=False, note=None)
            )
        )
    if not is_sure:  # what differs says what was there
        await reveal_it(asked, "arguments, to replace them")
    try:
        action = await asked.reading.read_at_length(plan)
        if is_sure:
            return asked.go("job", ref=await _replaced(asked, action))
        seen = await asked.reading.read_at_length(
            lambda store: _differences(store, ref, action)
        )
    except UsageError as error:
        now = await asked.reading.read_at_length(lambda store: _now(store, ref))
        seen_now = now._replace(text="") if is_sure else now
        return _form(asked, seen_now, typed, str(error))
    return asked.page(
        "replay.html",
        ref=ref,
        differences=seen,
        typed=typed,
        some="1" if is_some else "",
        note=form.get("note", ""),
    )


async def _replaced(asked: Asked, action: Replay) -> str:
    """Replace a job; return the ref of the new one.

    Raises:
        UsageError: it was not replaced.
    """
    done = await asked.operate(action)
    if not done.replaced_by:
        raise UsageError("; ".join(done.refused) or "nothing was changed")
    new_id = next(iter(done.replaced_by.values()))
    return await asked.reading.read_at_length(lambda store: store.ref_of(new_id))


def _form(asked: Asked, now: Now, typed: str, wrong: str) -> Response:
    return asked.page(
        "edit.html",
        status_code=400 if wrong else 200,
        ref=asked.part("ref"),
        now=now,
        typed=typed,
        wrong=wrong,
    )


def _now(store: Store, ref: str) -> Now:
    """Return a job's arguments, as they may be shown.

    Raises:
        ArgumentsRejected: they are encoded, or no object.
    """
    job = found(store, ref)
    payload = store.payload(job.id) or b""
    arguments_of(job, payload)
    shown = Redactor(store, store.kinds()).of(job).payload(payload) or b""
    # What could mislead is escaped as JSON does it, so that it stays what it is.
    plain = json_text(msgspec.json.format(shown, indent=-1).decode("utf-8", "replace"))
    if len(plain) > _EDITED_MAX:
        raise UsageError(
            f"its arguments have {len(plain):,} characters, and at most "
            f"{_EDITED_MAX:,} can be edited here; use jobpool replay {job.id} --edit"
        )
    return Now(
        job=job.id,
        kind=job.kind,
        text=msgspec.json.format(plain),
        hides=msgspec.json.decode(shown) != msgspec.json.decode(payload),
    )


def _action(
    store: Store, ref: str, typed: str, *, is_some: bool, note: str | None
) -> Replay:
    """Return the action that replaces a job.

    Raises:
        UsageError: what was typed is no JSON.
    """
    job = found(store, ref)
    kinds = {kind.kind: kind for kind in store.kinds()}
    replacing = Replacing(
        kinds,
        updated_with(typed, _ARGUMENTS) if is_some else replaced_by(typed),
        _ARGUMENTS,
        kind_to=None,
        payload_max_bytes=PAYLOAD_MAX_BYTES,
    )
    return Replay(jobs=Selection(ids=(job.id,)), replace=replacing, note=note)


def _differences(store: Store, ref: str, action: Replay) -> list[Difference]:
    """Return what would differ; hidden values stay so.

    Raises:
        UsageError: the job cannot be replaced so.
    """
    job = found(store, ref)
    selected, refused = action.select(store)
    planned = list(action.planned(store, selected, refused))
    if not planned:
        raise UsageError("; ".join(refused))
    (_, replacement), *_ = planned
    payload = store.payload(job.id) or b""
    redactor = Redactor(store, store.kinds())
    redaction = redactor.of_change(job, payload, replacement.new)
    before = arguments_of(job, payload)
    after: Mapping[str, object] = msgspec.json.decode(replacement.new.payload)

    def shown(value: object, steps: tuple[str | int, ...]) -> str:
        if value is MISSING:
            return ""
        text = msgspec.json.encode(redaction.value(value, steps)).decode()
        return text if len(text) <= _VALUE_MAX else f"{text[:_VALUE_MAX]}…"

    return [
        Difference(one.path, shown(one.before, one.steps), shown(one.after, one.steps))
        for one in differences(before, after)
    ]
