"""What people do to flows."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.responses import Response

from jobpool.dashboard.asked import Asked
from jobpool.errors import FlowNotFound, JobNotFound, UsageError
from jobpool.operations.action import Action
from jobpool.operations.flows import (
    Approve,
    CancelFlow,
    PauseFlow,
    ResumeFlow,
    RetryFlow,
)


async def cancel(asked: Asked) -> Response:
    """Cancel what has not ended of a flow."""
    return await _change(asked, lambda flow, note: CancelFlow(flow=flow, note=note))


async def pause(asked: Asked) -> Response:
    """Let nothing more of a flow begin."""
    return await _change(asked, lambda flow, note: PauseFlow(flow=flow, note=note))


async def resume(asked: Asked) -> Response:
    """Undo the pause of a flow."""
    return await _change(asked, lambda flow, note: ResumeFlow(flow=flow, note=note))


async def retry(asked: Asked) -> Response:
    """Run again what failed in a flow, and all after it."""
    return await _change(asked, lambda flow, note: RetryFlow(flow=flow, note=note))


async def approve(asked: Asked) -> Response:
    """End a step that waits for somebody."""
    form = await asked.form()
    ref, job_ref = asked.part("ref"), form.get("job", "")
    result = _as_json(form.get("result", ""))
    job = await asked.reading.read_at_length(lambda store: store.id_of(job_ref))
    if job is None:
        raise JobNotFound(
            "the form names no job of this store; nothing was approved: open the "
            "flow again"
        )
    await asked.operate(Approve(job=job, result=result, note=form.get("note")))
    return asked.go("flow", ref=ref)


async def _change(
    asked: Asked, action: Callable[[int, str | None], Action]
) -> Response:
    form = await asked.form()
    ref = asked.part("ref")
    flow = await asked.reading.read_at_length(lambda store: store.flow_id_of(ref))
    if flow is None:
        raise FlowNotFound("there is no such flow in this store; nothing was changed")
    done = await asked.operate(action(flow, form.get("note")))
    if done.is_made:
        return asked.go("flow", ref=ref)
    return asked.page(
        "done.html",
        said="It was so already, or the flow has come further meanwhile.",
        done=done,
        back=asked.url("flow", ref=ref),
        back_text="Back to the flow",
    )


def _as_json(text: str) -> bytes | None:
    """Return a result as it is stored; None: none was given.

    Raises:
        UsageError: it is no JSON.
    """
    if not text.strip():
        return None
    try:
        return msgspec.json.encode(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f'the result: expected JSON, such as {{"by": "ann"}} or "yes": {error}; '
            "nothing was approved"
        ) from error
