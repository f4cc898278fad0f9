"""The demo's application: what its supervisor loads, as a user's would be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobpool import Handler, JobPool
from jobpool.cli.demo import handlers
from jobpool.cli.demo.cases import CASES

PARSE = "honest.parse"
HASH = "honest.hash"


def declare(pool: JobPool) -> Mapping[str, Handler[..., Any]]:
    """Register all handlers of the demo; returns them by kind."""
    declared: list[Handler[..., Any]] = [
        pool.job("cpu", kind=PARSE)(handlers.parse),
        pool.job("io", kind=HASH)(handlers.hash_files),
    ]
    declared += [
        pool.job(case.pool, **case.declaration)(case.function) for case in CASES
    ]
    return {handler.kind: handler for handler in declared}


jobs = JobPool()
declare(jobs)
