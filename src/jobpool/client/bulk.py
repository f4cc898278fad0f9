"""Many jobs, streamed: a batch is checked whole, then stored whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobpool.client.gateway import Gateway
from jobpool.client.handler import BoundHandler, Call, Handler
from jobpool.client.options import DEFAULT, Options
from jobpool.core.alike import AlikeJobs
from jobpool.core.job import NewJob
from jobpool.errors import ArgumentsRejected, UsageError

BATCH_JOBS_MAX = 1000
BATCH_BYTES_MAX = 4 * 2**20
"""A batch ends here too: memory stays bounded, and it fits one message."""

_Batch = tuple[Sequence[NewJob], Any]
"""Jobs, and the caller's connection that they go by."""


def enqueue_many(
    gateway: Gateway, target: Any, items: Iterable[Mapping[str, Any]] | None
) -> int:
    """Store a job for each item or call, as `JobPool.enqueue_many` says."""
    batches = _of_calls(target) if items is None else _of_items(target, items)
    stored = 0
    try:
        for batch, connection in batches:
            answers = gateway.enqueue(batch, connection)
            stored += sum(answer.created for answer in answers)
    except ArgumentsRejected as exc:
        raise ArgumentsRejected(
            f"{exc}; {stored} jobs of the items before it were stored"
        ) from None
    except Exception as exc:
        exc.add_note(f"enqueue_many: {stored} jobs had been stored before this")
        raise
    return stored


def _of_items(target: Any, items: Iterable[Mapping[str, Any]]) -> Iterator[_Batch]:
    handler, options = _checked(target)
    pattern = handler.new_job(options)
    payloads: list[bytes] = []
    size_bytes = 0
    for index, item in enumerate(_each(items, "dicts of arguments by name")):
        try:
            payload = handler.encode_named(item)
        except ArgumentsRejected as exc:
            raise ArgumentsRejected(f"item {index} (the first is 0): {exc}") from None
        payloads.append(payload)
        size_bytes += len(payload)
        if _is_full(payloads, size_bytes):
            yield AlikeJobs(pattern, payloads), options.connection
            payloads, size_bytes = [], 0
    if payloads:
        yield AlikeJobs(pattern, payloads), options.connection


def _of_calls(calls: Iterable[Call[Any]]) -> Iterator[_Batch]:
    if isinstance(calls, (Handler, BoundHandler)):
        raise UsageError(
            "enqueue_many: a handler without items; pass dicts of arguments after it, "
            "or calls instead: enqueue_many(handler.call(...) for ...)"
        )
    jobs: list[NewJob] = []
    size_bytes = 0
    connection: Any = None
    for index, call in enumerate(_each(calls, "calls, such as handler.call(...)")):
        if not isinstance(call, Call):
            raise UsageError(
                f"enqueue_many: expected calls, such as handler.call(...), got "
                f"{type(call).__name__} as item {index} (the first is 0)"
            )
        if jobs and (call.connection is not connection or _is_full(jobs, size_bytes)):
            yield jobs, connection
            jobs, size_bytes = [], 0
        connection = call.connection
        jobs.append(call.job)
        size_bytes += len(call.job.payload)
    if jobs:
        yield jobs, connection


def _checked(target: Any) -> tuple[Handler[..., Any], Options]:
    handler, options = (
        (target.handler, target.chosen)
        if isinstance(target, BoundHandler)
        else (target, DEFAULT)
    )
    if not isinstance(handler, Handler):
        raise UsageError(
            f"enqueue_many: expected a handler, got {type(target).__name__}; decorate "
            "the function with @jobs.job(...) first"
        )
    if options.key is not None or options.unique is not None:
        raise UsageError(
            "enqueue_many: key= and unique= would make all items one job; give each "
            "its own: enqueue_many(handler.options(key=...).call(...) for ...)"
        )
    return handler, options


def _each(items: Any, expected: str) -> Iterator[Any]:
    if not isinstance(items, Iterable) or isinstance(items, (str, bytes, Mapping)):
        raise UsageError(
            f"enqueue_many: expected a list or generator of {expected}, got "
            f"{type(items).__name__}"
        )
    return iter(items)


def _is_full(batch: Sequence[object], size_bytes: int) -> bool:
    return len(batch) >= BATCH_JOBS_MAX or size_bytes >= BATCH_BYTES_MAX
