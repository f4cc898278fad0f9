"""Every error that jobpool raises, and those that a handler may raise.

Each message says what was seen, what was expected and what to do. How an
attempt ends is never an exception inside the supervisor: it is an `Outcome`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any


class JobpoolError(Exception):
    """Base of every error that jobpool raises on purpose."""


class ConfigError(JobpoolError):
    """A setting is wrong or contradicts another; nothing was started."""


class AppError(JobpoolError):
    """The application could not be loaded, or declares something impossible.

    Attributes:
        traceback: the application's own traceback, or "" when there is none.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class UsageError(JobpoolError):
    """The library was called in a way that cannot work; nothing was done."""


class ArgumentsRejected(UsageError):
    """Arguments do not fit the handler, or its cap; nothing was enqueued."""


class UnknownKind(UsageError):
    """No registered handler has this kind; nothing was enqueued."""


class KeyConflict(UsageError):
    """The idempotency key was used with other arguments; nothing was enqueued.

    Attributes:
        job_id: the job that holds the key.
    """

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class QueueFull(JobpoolError):
    """The queue holds as many jobs as it may; nothing was enqueued."""


class JobNotFound(JobpoolError):
    """No job has this id; it may have been pruned."""


class JobUnsuccessful(JobpoolError):
    """The job whose result was asked for ended without one.

    Attributes:
        job_id: the job.
        state: ``dead``, ``quarantined`` or ``canceled``.
        outcome: how its last attempt ended; None when it never ran.
        error_class: class name of the handler's last exception, if any.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: int,
        state: str,
        outcome: str | None,
        error_class: str | None,
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.state = state
        self.outcome = outcome
        self.error_class = error_class

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class WaitTimeout(JobpoolError, TimeoutError):
    """The job had not ended when the time to wait was over; it goes on."""


class StoreError(JobpoolError):
    """Base of everything that can be wrong with a store."""


class StoreUnavailable(StoreError):
    """The store could not be reached or written; the operation did not happen.

    Trying again later is right: nothing was half written.
    """


class StoreFull(StoreUnavailable):
    """There is no room on the store's disk; the operation did not happen."""


class StoreRefused(StoreError):
    """This store must not be used as it is: foreign, damaged, newer, remote.

    Trying again does not help; the message names the remedy.
    """


class OutcomeUnknown(StoreError):
    """The answer to a commit was lost, and the store could not be asked about it.

    The operation may or may not have happened: look before you do it again, or do it
    under an idempotency key, which makes a repetition harmless.
    """


class Superseded(JobpoolError):
    """This attempt's lease was taken back: its token is valid no longer.

    Nothing was written; let the transaction fail, and the handler end.
    """


@dataclass(frozen=True, kw_only=True)
class DeathEvidence:
    """What is known about the death of an executor's job. Texts are capped."""

    outcome: str
    """``crashed``, ``timed_out``, ``out_of_memory``, ``interrupted``, …"""
    reason: str = ""
    """One line."""
    signal: str | None = None
    """Name of the signal that ended its process, such as ``SIGSEGV``."""
    exit_code: int | None = None
    peak_rss_bytes: int | None = None
    duration_s: float | None = None
    """Of the last attempt."""
    attempts: int = 1
    output: str = ""
    """Tail of what it wrote to stdout and stderr."""
    stack: str = ""
    """Python stacks at the kill or the fatal signal."""


class JobDied(JobpoolError):
    """A job of an `Executor` ended with its process; no other job is concerned.

    Attributes:
        evidence: how it died.
    """

    def __init__(self, message: str, *, evidence: DeathEvidence) -> None:
        super().__init__(message)
        self.evidence = evidence

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class JobCrashed(JobDied):
    """Its process died: a fatal signal, an exit, a kill from outside."""


class JobTimedOut(JobDied, TimeoutError):
    """It was killed at its time limit."""


class JobOutOfMemory(JobDied, MemoryError):
    """It was killed at its memory limit."""


class JobpoolBug(JobpoolError):
    """Something happened that cannot happen; please report it."""


class GiveUp(Exception):
    """Raised by a handler: this job can never succeed; it is dead now."""


class ArgumentsMisfit(GiveUp):
    """The stored arguments of a job do not fit its handler as it is here.

    jobpool raises it before the handler is called. The job is left to supervisors that
    have another version of it, and is dead once it has fitted none of those alive for
    ``unknown_for``.
    """


class ResultTooLarge(JobpoolError, GiveUp, ValueError):
    """What a handler has returned is over ``result_max``; the job is dead now.

    Another attempt would return as much. Nothing of the result was stored.
    """


class Snooze(Exception):
    """Raised by a handler: not yet; call me again after *after*.

    The attempt costs nothing: no failure, no attempt, no row in the job's history; the
    next one has the same number, and a fresh fencing token. What was saved as a
    checkpoint is kept, and so are ``key``, ``unique`` and ``expires_in``: a job none of
    whose attempts has gone further than a snooze is canceled when it expires. With
    ``rerun="never"`` it is called again all the same: its handler says that it has not
    done its work.

    It has a cap of its own: a job that snoozes for the 1,000th time in a row, or 7 days
    after the first of them, is dead. An attempt that ends otherwise and is followed by
    another, a retry and a release begin the count anew.

    Args:
        after: ``"5m"``, seconds, or a timedelta; at least 1 s, whatever is given, and
            at most 7 days. Anything else makes the attempt fail.
        reason: text kept with the job until it goes on, and written to the log.
    """

    def __init__(self, after: str | float | timedelta, reason: str = "") -> None:
        super().__init__(reason or f"asked to be called again after {after}")
        self.after = after

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class RetryLater(Exception):
    """Raised by a handler: it has failed; try again after *delay*.

    This attempt is spent, as after any exception: with the last of ``max_attempts`` the
    job is dead. To wait for something without failing, raise `Snooze`.

    Args:
        delay: ``"5m"``, seconds, or a timedelta; None means the usual back-off.
        reason: text kept with the attempt.
    """

    def __init__(
        self, delay: str | float | timedelta | None = None, reason: str = ""
    ) -> None:
        super().__init__(reason or f"asked to be tried again after {delay}")
        self.delay = delay

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class SoftMemory(Exception):
    """Raised inside a handler once its attempt is over its soft memory limit.

    Only where the handler's decorator names ``memory_soft``: a limit that the
    configuration alone has set is no more than a line in the log. Once an attempt, in
    the main thread, between two steps of Python: not inside of C code, and not in
    other threads or processes. An ``async def`` handler is canceled instead: it sees
    ``asyncio.CancelledError``.

    The hard limit stands, whatever the handler does. An attempt that ends by it is
    ``failed``: it ended in good order and its process lives, so that it is no crash,
    and no step towards quarantine; `memory_growth` follows the hard limit alone.
    """


class SoftTimeout(Exception):
    """Raised inside a handler at its soft time limit, so that it can clean up.

    The hard limit still follows; an attempt that ends by it is ``timed_out``. An
    ``async def`` handler is canceled instead: it sees ``asyncio.CancelledError``.
    """


def _again(
    cls: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]
) -> BaseException:
    """Make an error anew from its pickle, whatever its constructor asks for."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(facts)
    return error
