"""For applications of FastAPI and Starlette: a lifespan, errors, progress as events.

    from jobpool.integrations.starlette import answer_errors, lifespan, progress

    app = FastAPI(lifespan=lifespan("--pools", "cpu=2"))
    answer_errors(app)

It needs starlette, which FastAPI brings along.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from jobpool.client.job import Job
from jobpool.core.jobs.job import FINISHED
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import JobNotFound, QueueFull, StoreUnavailable
from jobpool.integrations.beside import Beside

__all__ = ["answer_errors", "lifespan", "progress"]

State = Mapping[str, Any] | None
Lifespan = Callable[[Any], AbstractAsyncContextManager[State]]
_SOON_S = 5
"""When it is worth asking again if the store cannot be reached."""


def lifespan(
    *flags: str,
    app: str | None = None,
    store: str | None = None,
    patience: DurationLike = "40s",
    within: Lifespan | None = None,
) -> Lifespan:
    """Return a lifespan that runs a supervisor with the server.

    It begins before the first request, and drains after the last. Of several workers
    one has it, and another takes over when that one ends: there are never two.

    Args:
        *flags: of ``jobpool run``, such as ``"--pools"`` and ``"cpu=2"``.
        app: the application with the handlers; None: as configured, ``./jobs.py``.
        store: its URL; None: as configured.
        patience: how long it may drain.
        within: the application's own lifespan.

    Raises:
        ConfigError: the configuration is wrong.
    """
    beside = Beside(*flags, app=app, store=store, patience=patience)

    @asynccontextmanager
    async def running(asgi: Any) -> AsyncIterator[State]:
        beside.start()
        try:
            async with within(asgi) if within else nullcontext() as state:
                yield state
        finally:
            await asyncio.to_thread(beside.stop)

    return running


def answer_errors(app: Starlette) -> None:
    """Let an application answer errors of jobpool as HTTP has them.

    A full queue is 429, and a store that cannot be reached 503, both with
    ``Retry-After``; a job that does not exist is 404. What they say is for the log, not
    for everybody.

    Args:
        app: of Starlette or FastAPI.
    """
    app.add_exception_handler(QueueFull, _full)
    app.add_exception_handler(StoreUnavailable, _unavailable)
    app.add_exception_handler(JobNotFound, _not_found)


def progress(job: Job[Any], *, every: DurationLike = 0.5) -> Response:
    """Return server-sent events of a job, for ``EventSource`` in a page.

    Each has the job's ``state`` and ``progress`` as JSON; the first comes at once, then
    one for each change. The last one is named ``end``.

    Args:
        job: found by its `Job.ref`, which cannot be guessed.
        every: how often the store is asked.

    Raises:
        ConfigError: *every* is no duration.
    """
    every_s = duration_s(every, "every")
    return StreamingResponse(
        _events(job, every_s),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(job: Job[Any], every_s: float) -> AsyncIterator[bytes]:
    last = b""
    while True:
        info = await asyncio.to_thread(job.info)
        value = None if info.progress is None else msgspec.json.decode(info.progress)
        now = msgspec.json.encode({"state": info.shown_state, "progress": value})
        if info.state in FINISHED:
            yield b"event: end\ndata: " + now + b"\n\n"
            return
        if now != last:
            yield b"data: " + now + b"\n\n"
            last = now
        await asyncio.sleep(every_s)


def _full(_request: Request, error: Exception) -> Response:
    after_s = error.retry_after_s if isinstance(error, QueueFull) else 60.0
    return _refusal(
        HTTPStatus.TOO_MANY_REQUESTS, "too many jobs are waiting", f"{after_s:.0f}"
    )


def _unavailable(_request: Request, _error: Exception) -> Response:
    return _refusal(
        HTTPStatus.SERVICE_UNAVAILABLE, "jobs cannot be stored now", str(_SOON_S)
    )


def _not_found(_request: Request, _error: Exception) -> Response:
    return JSONResponse({"detail": "there is no such job"}, HTTPStatus.NOT_FOUND)


def _refusal(status: HTTPStatus, detail: str, after: str) -> Response:
    return JSONResponse({"detail": detail}, status, {"Retry-After": after})
