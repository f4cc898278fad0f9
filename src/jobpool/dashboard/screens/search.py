"""The search box: a job or a flow at once, else the jobs that have the words."""

from __future__ import annotations

from starlette.responses import Response

from jobpool.dashboard.asked import Asked
from jobpool.store.protocol import Store

_TEXT_MAX = 200
Goal = tuple[str, dict[str, str]]


async def show(asked: Asked) -> Response:
    """Lead to what was meant."""
    text = asked.query.get("q", "").strip()[:_TEXT_MAX]
    if not text:
        return asked.go("jobs")
    found = await asked.reading.read(lambda store: goal_of(store, text))
    route, parameters = found if isinstance(found, tuple) else ("jobs", {"text": text})
    return asked.go(route, **parameters)


def goal_of(store: Store, text: str) -> Goal:
    """Return the page that a text means, and its parameters.

    Args:
        store: knows the jobs.
        text: a ref, an id, the name of a kind, or words.
    """
    job_id = int(text) if text.isascii() and text.isdigit() else store.id_of(text)
    job = None if job_id is None or job_id >= 2**63 else store.get(job_id)
    if job is not None and job.ref:
        return "job", {"ref": job.ref}
    if store.flow_id_of(text) is not None:
        return "flow", {"ref": text}
    if any(record.kind == text for record in store.kinds()):
        return "kind", {"kind": text}
    return "jobs", {"text": text}
