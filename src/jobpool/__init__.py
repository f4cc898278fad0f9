"""Run background jobs that may hang, leak, crash or lie, and never lose one."""

# The house, from the roof down; each floor imports only from below:
#
#   cli/          the command `jobpool`            testing   for applications' tests
#   executor/     a concurrent.futures.Executor over a supervisor of its own
#   supervisor/   leases, starts, watches, settles; runs no user code
#   client/       JobPool, Handler, Job: what applications call
#   sandbox/      one attempt, one child           store/    durable truth
#   core/         rules and records: no I/O, no clock, no process
#   errors        every error, and the three that a handler may raise

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobpool.client.handle import Job
from jobpool.client.handler import Call, Handler
from jobpool.client.hooks import DeadJob
from jobpool.client.jobpool import JobPool
from jobpool.client.retry import Retry
from jobpool.core.running import current
from jobpool.core.version import __version__ as __version__
from jobpool.errors import (
    AppError,
    ArgumentsRejected,
    ConfigError,
    GiveUp,
    JobCrashed,
    JobNotFound,
    JobOutOfMemory,
    JobpoolBug,
    JobpoolError,
    JobTimedOut,
    JobUnsuccessful,
    KeyConflict,
    OutcomeUnknown,
    QueueFull,
    RetryLater,
    Snooze,
    SoftMemory,
    SoftTimeout,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    Superseded,
    UnknownKind,
    UsageError,
    WaitTimeout,
)

if TYPE_CHECKING:
    from jobpool.executor.executor import Executor

__all__ = [
    "AppError",
    "ArgumentsRejected",
    "Call",
    "ConfigError",
    "DeadJob",
    "Executor",
    "GiveUp",
    "Handler",
    "Job",
    "JobCrashed",
    "JobNotFound",
    "JobOutOfMemory",
    "JobPool",
    "JobTimedOut",
    "JobUnsuccessful",
    "JobpoolBug",
    "JobpoolError",
    "KeyConflict",
    "OutcomeUnknown",
    "QueueFull",
    "Retry",
    "RetryLater",
    "Snooze",
    "SoftMemory",
    "SoftTimeout",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Superseded",
    "UnknownKind",
    "UsageError",
    "WaitTimeout",
    "current",
]


def __getattr__(name: str) -> Any:
    """Import the executor when it is first asked for: few programs use both."""
    if name == "Executor":
        from jobpool.executor.executor import Executor  # noqa: PLC0415 - see above

        return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
