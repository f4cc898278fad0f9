"""What people do to one job: run it again, release it, cancel it, look into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from jobpool.dashboard.actions.fields import size
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.screens.jobs.one import found, show_job
from jobpool.operations.jobs import Cancel, JobsAction, Release, Retry, Reveal
from jobpool.operations.selection import Selection


async def retry(asked: Asked) -> Response:
    """Run a job now, with fresh counters."""
    return await _change(asked, Retry, await asked.form())


async def release(asked: Asked) -> Response:
    """Put a quarantined job back in line, perhaps with more memory."""
    form = await asked.form()
    return await _change(asked, Release, form, memory_bytes=size(form, "memory"))


async def cancel(asked: Asked) -> Response:
    """Cancel a job; a running one is killed."""
    return await _change(asked, Cancel, await asked.form())


async def reveal(asked: Asked) -> Response:
    """Show a job with its arguments and its result; that is written down first."""
    form = await asked.form()
    await reveal_it(asked, "arguments and result", form.get("note"))
    return await show_job(asked, reveals=True)


async def reveal_it(asked: Asked, what: str, note: str | None = None) -> int:
    """Write down that somebody looks into a job; return its id."""
    job_id = await id_asked(asked)
    await asked.operate(Reveal(job=job_id, what=what, note=note))
    return job_id


async def id_asked(asked: Asked) -> int:
    """Return the id of the job that a path names.

    Raises:
        JobNotFound: there is none.
    """
    ref = asked.part("ref")
    job = await asked.reading.read_at_length(lambda store: found(store, ref))
    return job.id


async def _change(
    asked: Asked, act: type[JobsAction], form: Mapping[str, str], **more: Any
) -> Response:
    jobs = Selection(ids=(await id_asked(asked),))
    done = await asked.operate(act(jobs=jobs, note=form.get("note"), **more))
    if done.is_made:
        return asked.go("job", ref=asked.part("ref"))
    return asked.page(
        "done.html",
        said=done.refused[0] if done.refused else "Nothing was to be done.",
        done=done,
        back=asked.url("job", ref=asked.part("ref")),
        back_text="Back to the job",
    )
