"""Many jobs of one handler, streamed: a batch is checked whole, then stored whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jobpool.client.gateway import Gateway
from jobpool.client.handler import BoundHandler, Handler
from jobpool.client.options import DEFAULT
from jobpool.core.alike import AlikeJobs
from jobpool.errors import ArgumentsRejected, UsageError

BATCH_JOBS_MAX = 1000
BATCH_BYTES_MAX = 4 * 2**20
"""A batch ends here too: memory stays bounded, and it fits one message."""


def enqueue_many(
    gateway: Gateway,
    target: Handler[..., Any] | BoundHandler[..., Any],
    items: Iterable[Mapping[str, Any]],
) -> int:
    """Store a job for each item, as `JobPool.enqueue_many` says."""
    handler, options = (
        (target.handler, target.options)
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
            "enqueue_many: key= and unique= would make all items one job; enqueue such "
            "jobs one by one"
        )
    stored = 0
    try:
        for batch in _batches(handler, options, items):
            stored += len(gateway.enqueue(batch, options.connection))
    except ArgumentsRejected as exc:
        raise ArgumentsRejected(
            f"{exc}; {stored} jobs of the items before it were stored"
        ) from None
    except Exception as exc:
        exc.add_note(f"enqueue_many: {stored} jobs had been stored before this")
        raise
    return stored


def _batches(
    handler: Handler[..., Any], options: Any, items: Iterable[Mapping[str, Any]]
) -> Iterator[AlikeJobs]:
    pattern = handler.new_job(options)
    payloads: list[bytes] = []
    size_bytes = 0
    for index, item in enumerate(items):
        try:
            payload = handler.encode_named(item)
        except ArgumentsRejected as exc:
            raise ArgumentsRejected(f"item {index} (the first is 0): {exc}") from None
        payloads.append(payload)
        size_bytes += len(payload)
        if len(payloads) >= BATCH_JOBS_MAX or size_bytes >= BATCH_BYTES_MAX:
            yield AlikeJobs(pattern, payloads)
            payloads, size_bytes = [], 0
    if payloads:
        yield AlikeJobs(pattern, payloads)
