"""The errors that jobpool raises, and those that a handler may raise.

Each message says what was seen, what was expected and what to do. Inside the
supervisor an attempt's end is never an exception: it is an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol


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


class Forbidden(JobpoolError):
    """Somebody's role does not allow what they asked for; nothing was changed."""


class ArgumentsRejected(UsageError):
    """The arguments do not fit the handler or are too large; nothing was enqueued."""


class UnknownKind(UsageError):
    """No registered handler has this kind; nothing was enqueued."""


class KeyConflict(UsageError):
    """The idempotency key was used with other arguments; nothing was enqueued.

    Attributes:
        job_id: the job that holds the key.
        encoded: for jobpool itself: of each encoded job whose key is held, the holder,
            its payload and codec as stored, and the refused payload. Only who has the
            codec can tell whether they are the same.
    """

    def __init__(
        self,
        message: str,
        job_id: int,
        encoded: Sequence[tuple[int, bytes, str | None, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.encoded = encoded

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class QueueFull(JobpoolError):
    """As many jobs wait as may wait, or for as long; nothing was enqueued.

    Attributes:
        what: what is full: ``the queue``, or ``kind``, ``pool`` or ``tenant`` and its
            name.
        depth: how many jobs it holds that count, as far as they were counted.
        depth_max: how many it may hold; None: that has no limit.
        age_s: how long its oldest job has waited, in seconds; None: that was not asked.
        age_max_s: how long it may have waited; None: that has no limit.
        retry_after_s: when it is worth trying again, in seconds from now: 1 to 3,600.
    """

    def __init__(
        self,
        message: str,
        *,
        what: str = "the queue",
        depth: int | None = None,
        depth_max: int | None = None,
        age_s: float | None = None,
        age_max_s: float | None = None,
        retry_after_s: float = 60.0,
    ) -> None:
        super().__init__(message)
        self.what = what
        self.depth = depth
        self.depth_max = depth_max
        self.age_s = age_s
        self.age_max_s = age_max_s
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class FeatureHeldBack(JobpoolError):
    """A feature cannot be used yet: supervisors that do not know it are running.

    Nothing was enqueued. It can be used once they have ended; the message names them.
    """


class JobNotFound(JobpoolError):
    """No job has this id; it may have been pruned."""


class JobErased(JobNotFound):
    """The job's result was erased, with all else that it held; its row is left."""


class JobUnsuccessful(JobpoolError):
    """The job ended without the result that was asked for.

    Attributes:
        job_id: the job.
        state: ``dead``, ``quarantined`` or ``canceled``.
        outcome: how its last attempt ended; None if it never ran.
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


class FlowNotFound(JobpoolError):
    """No flow has this id or ref; it may have been pruned."""


class FlowUnsuccessful(JobpoolError):
    """The flow ended without the result that was asked for.

    Attributes:
        flow_id: the flow.
        state: ``failed`` or ``canceled``; or ``succeeded``, if the step was skipped.
    """

    def __init__(self, message: str, *, flow_id: int, state: str) -> None:
        super().__init__(message)
        self.flow_id = flow_id
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class WaitTimeout(JobpoolError, TimeoutError):
    """The job or flow had not finished before the timeout; it is unaffected."""


class CodecMismatch(JobpoolError):
    """What is stored is encoded with a codec or a key that this application lacks.

    It is unchanged. The message holds neither key nor content.
    """


class StoreError(JobpoolError):
    """Base of all errors of a store."""


class StoreUnavailable(StoreError):
    """The store could not be reached or written; the operation did not happen.

    It is safe to try again later: nothing was half written.
    """


class StoreFull(StoreUnavailable):
    """The store's disk is full; the operation did not happen."""


class StoreRefused(StoreError):
    """This store must not be used as it is: foreign, damaged, newer, remote.

    Trying again does not help; the message names the remedy.
    """


class StoreWentBack(StoreRefused):
    """The store holds less than it did: a backup was put in its place.

    A supervisor that meets this ends its jobs and writes nothing more.
    """


class OutcomeUnknown(StoreError):
    """The answer to a commit was lost, and the store could not be asked about it.

    The operation may or may not have happened: check before you repeat it, or use an
    idempotency key, which makes a repetition harmless.
    """


class Superseded(JobpoolError):
    """This attempt's lease was taken back: its token is no longer valid.

    Nothing was written; let the transaction fail, and the handler end.
    """


@dataclass(frozen=True, kw_only=True)
class DeathEvidence:
    """What is known about how an executor's job died. Texts are capped."""

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
    """The last of its stdout and stderr."""
    stack: str = ""
    """Python stacks at the kill or the fatal signal."""


class JobDied(JobpoolError):
    """A job of an `Executor` died with its process; other jobs are unaffected.

    Attributes:
        evidence: how it died.
    """

    def __init__(self, message: str, *, evidence: DeathEvidence) -> None:
        super().__init__(message)
        self.evidence = evidence

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class JobCrashed(JobDied):
    """Its process died: of a fatal signal, an exit, or a kill from outside."""


class JobTimedOut(JobDied, TimeoutError):
    """It was killed at its time limit."""


class JobOutOfMemory(JobDied, MemoryError):
    """It was killed at its memory limit."""


class JobpoolBug(JobpoolError):
    """An internal error: something that cannot happen did; please report it."""


class GiveUp(Exception):
    """Raised by a handler whose job can never succeed; the job becomes dead."""


class ArgumentsMisfit(GiveUp):
    """A job's stored arguments do not fit this version of its handler.

    jobpool raises it before the handler is called. The job is left to supervisors that
    have another version, and becomes dead once it has fitted none of those alive for
    ``unknown_for``.
    """


class CommandFailed(JobpoolError):
    """A command's program failed, or could not be started; the attempt has failed.

    Attributes:
        exit_code: its exit status; None: it was ended by a signal, or not started.
        signal: the signal that ended it, such as ``SIGSEGV``; None: none did.
    """

    def __init__(
        self, message: str, *, exit_code: int | None = None, signal: str | None = None
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.signal = signal

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class ResultTooLarge(JobpoolError, GiveUp, ValueError):
    """A handler's result is over ``result_max``; the job becomes dead.

    Another attempt would return as much. No part of the result was stored.
    """


class Throttles(Protocol):
    """What `Throttled` needs to know of a quota."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def value_here(self, value: str | int | None = None) -> str:
        """Return which bucket is meant, as text; None: the running job's."""
        ...


class Snooze(Exception):
    """Raised by a handler that cannot do its work yet: call it again after *after*.

    The attempt costs nothing: no failure, no attempt, no row in the job's history. The
    next attempt has the same number and a fresh fencing token. Its checkpoint is kept,
    and so are ``key``, ``unique`` and ``expires_in``: a job whose attempts have all
    snoozed is canceled when it expires. A job with ``rerun="never"`` is called again
    too: its handler has said that its work is not done.

    Snoozes are capped: a job that snoozes for the 1,000th time in a row, or 7 days
    after the first of them, is dead. The count starts anew after an attempt that ended
    otherwise, after a retry and after a release.

    Args:
        after: ``"5m"``, seconds, or a timedelta; raised to 1 s if shorter, and at most
            7 days. Anything else makes the attempt fail.
        reason: text kept with the job until its next attempt, and written to the log.
    """

    def __init__(self, after: str | float | timedelta, reason: str = "") -> None:
        super().__init__(reason or f"asked to be called again after {after}")
        self.after = after

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


class Throttled(Snooze):
    """Raised by a handler that a quota's owner has told to wait, as by HTTP's 429.

    For the job it is a `Snooze`: the attempt costs nothing. And nobody else begins with
    a permit of that quota, or of the bucket that is meant, or gets one by ``permit()``,
    before *after* has passed. What runs goes on.

    The same job may be throttled 20 times in a row, or for 24 hours; from then on it
    counts as a failure, which spends an attempt.

    Args:
        quota: the quota.
        after: ``"30s"``, seconds, or a timedelta; at most the quota's ``throttle_max``
            is waited. Anything else makes the attempt fail, and blocks nothing.
        reason: text kept with the job until its next attempt, and written to the log.
        value: which bucket, if the quota counts by something; None: the running job's.

    Attributes:
        quota: the quota's name.
        value: the bucket's value, as text.

    Raises:
        UsageError: the quota counts by something that the running job does not have,
            or is of another `JobPool`; nothing is blocked.
    """

    def __init__(
        self,
        quota: Throttles,
        after: str | float | timedelta,
        reason: str = "",
        *,
        value: str | int | None = None,
    ) -> None:
        self.quota = quota.name
        self.value = quota.value_here(value)
        super().__init__(after, reason or f"throttled by {self.quota} for {after}")


class RetryLater(Exception):
    """Raised by a handler that has failed and is to be retried after *delay*.

    It costs an attempt, as any exception does: after the last of ``max_attempts`` the
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

    Only if the handler's decorator names ``memory_soft``: a soft limit set by the
    configuration alone is only logged. It is raised once per attempt, in the main
    thread, between two bytecode instructions: not inside C code, and not in other
    threads or processes. An ``async def`` handler is canceled instead: it sees
    ``asyncio.CancelledError``.

    The hard limit still applies. An attempt that ends by this exception is ``failed``:
    its process lives, so that it is not a crash and does not count towards quarantine.
    `memory_growth` follows the hard limit alone.
    """


class SoftTimeout(Exception):
    """Raised inside a handler at its soft time limit, so that it can clean up.

    The hard limit still applies. An attempt that ends by this exception is
    ``timed_out``. An ``async def`` handler is canceled instead: it sees
    ``asyncio.CancelledError``.
    """


def _again(
    cls: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]
) -> BaseException:
    """Rebuild a pickled error without calling its constructor."""
    error = cls.__new__(cls, *args)
    error.__dict__.update(facts)
    return error
