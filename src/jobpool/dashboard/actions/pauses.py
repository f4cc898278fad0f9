"""What is paused and resumed: a pool, a kind, a tenant, a quota, or all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from jobpool.dashboard.actions.fields import needed, span_s, text
from jobpool.dashboard.asked import Asked
from jobpool.errors import UsageError
from jobpool.operations.action import Action
from jobpool.operations.queue import Pause, Resume

_PAGES = {
    "pool": "supervisors",
    "kind": "kind",
    "tenant": "tenant",
    "quota": "quota",
    "store": "supervisors",
}
"""By what a form pauses: the page that it leads back to."""
_NAMED_IN_PATH = ("kind", "tenant", "quota")


async def pause(asked: Asked) -> Response:
    """Start no more jobs of what is named."""
    form = await asked.form()
    what = _what(form)
    action = Pause(**what, for_s=span_s(form, "for"), note=text(form, "note"))
    return await _change(asked, form, action)


async def resume(asked: Asked) -> Response:
    """Start jobs of it again."""
    form = await asked.form()
    return await _change(asked, form, Resume(**_what(form), note=text(form, "note")))


async def _change(asked: Asked, form: Mapping[str, str], action: Action) -> Response:
    await asked.operate(action)
    what = form["what"]
    named = {what: form["name"]} if what in _NAMED_IN_PATH else {}
    return asked.go(_PAGES[what], **named)


def _what(form: Mapping[str, str]) -> dict[str, Any]:
    """Return what a form pauses.

    Raises:
        UsageError: that can be none of these.
    """
    what = needed(form, "what")
    if what not in _PAGES:
        raise UsageError(
            f"what to pause: expected one of {', '.join(_PAGES)}, got {what[:40]!r}; "
            "nothing was changed"
        )
    return {"whole_store": True} if what == "store" else {what: needed(form, "name")}
