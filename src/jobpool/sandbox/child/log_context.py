"""Which attempt a log line is of: handlers' logging and structlog say so by themselves.

Records of the standard library get `job_id`, `job_kind` and `job_attempt`; structlog's
context variables get the same names. Neither is imported for that: an application that
uses structlog has imported it before its first handler runs.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from jobpool.core.application import current as running

NAMES = ("job_id", "job_kind", "job_attempt")


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
    if variables is not None:
        variables.bind_contextvars(**dict(zip(NAMES, _attempt(), strict=True)))


def _attempt() -> tuple[int | None, str | None, int | None]:
    """Return the attempt that runs here; None: none does."""
    found = running.entered()
    if found is None:
        return None, None, None
    return found.id, found.kind, found.attempt
