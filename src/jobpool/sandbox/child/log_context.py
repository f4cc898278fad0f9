"""Which attempt a log line is of: handlers' logging and structlog say so by themselves.

Records of the standard library get `job_id`, `job_kind`, `job_attempt` and `trace_id`;
structlog's context variables get the same names. Neither is imported for that: an
application that uses structlog has imported it before its first handler runs.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from jobpool.core.application import current as running
from jobpool.core.jobs.trace import read_trace

NAMES = ("job_id", "job_kind", "job_attempt", "trace_id")


def install() -> None:
    """Have each log record name the attempt in which it is made; once a process.

    A record factory would be the usual way, but what it has set cannot be an `extra` of
    the application's any more: that would be an error in a handler that worked before.
    """
    made = logging.Logger.makeRecord

    def make_record(
        logger: logging.Logger, *args: Any, **kwargs: Any
    ) -> logging.LogRecord:
        record = made(logger, *args, **kwargs)
        for name, value in zip(NAMES, _attempt(), strict=True):
            record.__dict__.setdefault(name, value)
        return record

    logging.Logger.makeRecord = make_record  # type: ignore[method-assign, assignment]


def bind() -> None:
    """Have structlog name the attempt that begins; nothing if it is not loaded."""
    variables = sys.modules.get("structlog.contextvars")
    if variables is None:
        return
    named = dict(zip(NAMES, _attempt(), strict=True))
    if named["trace_id"] is None:
        del named["trace_id"]
        variables.unbind_contextvars("trace_id")  # that of the attempt before
    variables.bind_contextvars(**named)


def _attempt() -> tuple[int | None, str | None, int | None, str | None]:
    """Return the attempt that runs here, and its trace; None: there is none."""
    found = running.entered()
    if found is None:
        return None, None, None, None
    trace = read_trace(found.trace)
    trace_id = None if trace is None else trace.trace_id
    return found.id, found.kind, found.attempt, trace_id
