"""One attempt in this process: what a child does for its handler, without the child."""

from __future__ import annotations

import contextvars
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import msgspec

from jobpool.core.application.current import (
    AttemptLimits,
    Channel,
    Current,
    Delivery,
    channel,
    enter,
    entered,
)
from jobpool.core.application.current_span import enter_span
from jobpool.sandbox.app_loader import Application
from jobpool.sandbox.child import log_context
from jobpool.sandbox.child.arguments import decoded_checkpoint, with_results
from jobpool.sandbox.child.encoding import PLAIN, Encoding
from jobpool.sandbox.child.exception_report import described, redacted
from jobpool.sandbox.protocol.messages import Done, RunJob


class Finished(NamedTuple):
    """How an attempt ended."""

    done: Done
    error: BaseException | None
    """What its handler raised."""


def encoding_of(application: Application, codec: str | None) -> Encoding:
    """Return what the data of a job passes through."""
    return PLAIN if codec is None else Encoding(application.named_codec(), codec)


def run_attempt(
    application: Application,
    job: RunJob,
    answers: Channel,
    encoding: Encoding,
    *,
    result_max_bytes: int,
) -> Finished:
    """Run a handler in this process, to its end.

    Its limits can be seen, and nothing enforces them.

    Args:
        application: has the handler.
        job: what a child would be sent.
        answers: what the handler asks.
        encoding: what the job's data passes through.
        result_max_bytes: a longer result is refused.

    Raises:
        KeyboardInterrupt: somebody has interrupted it.
    """
    pid = os.getpid()
    outer, outer_attempt = channel(), entered()
    told = job.payload
    error: BaseException | None = None
    result: Any = b""
    began_s, cpu_s = time.monotonic(), time.process_time()
    try:
        opened = encoding.opened(job)
        enter(answers, _attempt(opened, answers, began_s, len(told)))
        log_context.bind()
        context = contextvars.copy_context()
        enter_span(context, job.trace, job.token)
        payload = opened.payload
        if job.is_member:
            payload = with_results(payload, answers.step_results)
            told = payload if encoding is PLAIN else encoding.result(payload)
        result = context.run(application.invoke, job.kind, payload, result_max_bytes)
        result = encoding.result(result)
    except KeyboardInterrupt as exc:
        error = exc
        raise
    except BaseException as exc:  # noqa: BLE001 - every end of a handler is data
        error = exc
    finally:
        if os.getpid() != pid:
            _end_copy(error)
        enter(outer, outer_attempt)
    duration_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    return Finished(
        Done(
            seq=job.seq,
            token=job.token,
            ok=error is None,
            result=result if error is None else b"",
            duration_s=duration_s,
            cpu_s=cpu_s,
            rss_bytes=0,
            peak_rss_bytes=0,
            error=_told(application, job, told, encoding, error),
            began_s=began_s,
        ),
        error,
    )


def _end_copy(error: BaseException | None) -> NoReturn:
    """End a forked copy of this process that comes back from the handler."""
    if error is not None:
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0 if error is None else 1)


def _told(
    application: Application,
    job: RunJob,
    payload: bytes,
    encoding: Encoding,
    error: BaseException | None,
) -> Any:
    """Describe an exception, without what nobody is shown."""
    if error is None:
        return None
    told = msgspec.structs.replace(job, payload=payload)
    texts_of: Callable[..., Any] = application.redacted_texts
    _, described_error = redacted(b"", described(error), told, texts_of)
    return encoding.error(described_error)


def _attempt(
    job: RunJob, answers: Channel, began_s: float, payload_bytes: int
) -> Current:
    return Current(
        job_id=job.id,
        kind=job.kind,
        attempt=job.attempt,
        token=job.token,
        deadline_monotonic_s=began_s + job.timeout_s,
        checkpoint=decoded_checkpoint(job.checkpoint),
        channel=answers,
        limits=AttemptLimits(
            job.timeout_s, job.memory_bytes, job.max_attempts, job.failures
        ),
        tenant=job.tenant,
        key=job.key,
        priority=job.priority,
        scheduled=job.schedule,
        snoozes=job.snoozes,
        trace=job.trace,
        delivery=Delivery(job.pool, job.waited_s, payload_bytes),
    )
