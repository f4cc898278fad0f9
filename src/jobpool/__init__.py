"""Run background jobs that may hang, leak, crash or lie, and never lose one."""

# The packages from the top down; each imports only from those below it:
#
#   cli/          the command `jobpool`            testing   for applications' tests
#   executor/     a concurrent.futures.Executor with a supervisor of its own
#   supervisor/   leases, starts, watches, settles; runs no user code
#   client/       JobPool, Handler, Job: what applications call
#   operations/   what people do to jobs, who may, and the audit trail of it
#   sandbox/      one attempt in one child         store/    durable jobs
#   core/         rules and records: no I/O, no clock, no processes
#   errors        every error, and those that a handler may raise

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobpool.core.version import __version__ as __version__

if TYPE_CHECKING:
    from jobpool import errors as errors
    from jobpool.client.declare.retry import Retry
    from jobpool.client.flows.flow import Flow
    from jobpool.client.flows.run import FlowRun
    from jobpool.client.flows.step import Step
    from jobpool.client.handler import Call, Handler
    from jobpool.client.invoke.around import Enqueuing
    from jobpool.client.invoke.hooks import DeadJob
    from jobpool.client.job import Job
    from jobpool.client.jobpool import JobPool
    from jobpool.client.quotas.permit import Permit
    from jobpool.client.quotas.quota import Quota
    from jobpool.core.application.codec import Codec
    from jobpool.core.application.current import current
    from jobpool.errors import (
        AppError,
        ArgumentsRejected,
        CodecMismatch,
        CommandFailed,
        ConfigError,
        FeatureHeldBack,
        FlowNotFound,
        FlowUnsuccessful,
        GiveUp,
        JobCrashed,
        JobErased,
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
        Throttled,
        UnknownKind,
        UsageError,
        WaitTimeout,
    )
    from jobpool.executor.executor import Executor

__all__ = [
    "AppError",
    "ArgumentsRejected",
    "Call",
    "Codec",
    "CodecMismatch",
    "CommandFailed",
    "ConfigError",
    "DeadJob",
    "Enqueuing",
    "Executor",
    "FeatureHeldBack",
    "Flow",
    "FlowNotFound",
    "FlowRun",
    "FlowUnsuccessful",
    "GiveUp",
    "Handler",
    "Job",
    "JobCrashed",
    "JobErased",
    "JobNotFound",
    "JobOutOfMemory",
    "JobPool",
    "JobTimedOut",
    "JobUnsuccessful",
    "JobpoolBug",
    "JobpoolError",
    "KeyConflict",
    "OutcomeUnknown",
    "Permit",
    "QueueFull",
    "Quota",
    "Retry",
    "RetryLater",
    "Snooze",
    "SoftMemory",
    "SoftTimeout",
    "Step",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Superseded",
    "Throttled",
    "UnknownKind",
    "UsageError",
    "WaitTimeout",
    "current",
]


_HOMES = {
    "Call": "client.handler",
    "Codec": "core.application.codec",
    "DeadJob": "client.invoke.hooks",
    "Enqueuing": "client.invoke.around",
    "Executor": "executor.executor",
    "Flow": "client.flows.flow",
    "FlowRun": "client.flows.run",
    "Handler": "client.handler",
    "Job": "client.job",
    "JobPool": "client.jobpool",
    "Permit": "client.quotas.permit",
    "Quota": "client.quotas.quota",
    "Retry": "client.declare.retry",
    "Step": "client.flows.step",
    "current": "core.application.current",
}
"""The modules of these names; all others are errors."""


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: no process uses them all."""
    if name != "errors" and name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - slow, needed only here

    module = import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    value = globals()[name] = module if name == "errors" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "errors"})
