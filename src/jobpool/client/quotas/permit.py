"""Permit: what a request takes of a quota, through the attempt's supervisor."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from jobpool.core.application.current import Channel, PermitReply, channel, current
from jobpool.core.rules.quotas import definition
from jobpool.errors import (
    GiveUp,
    RetryLater,
    Snooze,
    SoftMemory,
    Throttled,
    Throttles,
    UsageError,
)

_TOO_MANY = 429
_ERRORS_FROM = 400
_FAILED_FROM = 500
_SAYS_NOTHING = (Snooze, GiveUp, RetryLater, SoftMemory, UsageError)
"""Exceptions that say nothing about how a request ended, and all that is no Exception,
such as a cancellation. `SoftTimeout` does: a service that hangs has failed."""
UNTOLD_AFTER_S = 5.0
"""How long a 429 blocks that does not say how long."""
_TOLD_MIN_S = 1.0
"""An answer that says 0, or a time that is past, blocks for so long: services count in
whole seconds, and a bucket that stayed open would send all that waits there at once."""
_BACK_IN_S = 5.0
"""When a job comes back that has got no permit, and nobody knows when there is one; it
waits longer each time: snoozes are counted, and it should not be dead by midnight."""
_BACK_MORE_S = 600.0
_LOOK_S = 1.0
"""A thread that waits for an answer looks at least so often."""
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.0005, 0.02
"""An event loop's pauses between two looks: they double."""


class Headers(Protocol):
    """The headers of an answer, as all HTTP clients have them."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return pairs of names, in any case, and values."""
        ...


class Bucket(NamedTuple):
    """One bucket of a quota."""

    quota: str
    value: str


class PermitQuota(Throttles, Protocol):
    """What a permit needs to know of its quota."""

    @property
    def definition(self) -> definition.Quota:
        """What was declared."""
        ...


_around: ContextVar[tuple[Permit, ...]] = ContextVar("jobpool_permits", default=())
"""The permits of the blocks that this code is in."""


def report(
    way: Channel, quota: Throttles, value: str, status: int, headers: Headers | None
) -> None:
    """Count an answer, and tell everybody if it asks for patience; see `Permit`.

    Args:
        way: to the supervisor.
        quota: who was asked.
        value: which bucket.
        status: the HTTP status.
        headers: the answer's headers.

    Raises:
        Throttled: it asks for patience.
        UsageError: there is no running attempt; nothing is blocked.
    """
    way.report_request(quota.name, value, failed=status >= _FAILED_FROM)
    if status < _ERRORS_FROM:
        return
    # Some milliseconds, which others do not pay.
    from jobpool.core.rules.quotas.throttle import (  # noqa: PLC0415
        THROTTLED_MAX_S,
        THROTTLED_STATUS,
        retry_after_s,
    )

    if status not in THROTTLED_STATUS:
        return
    named = {} if headers is None else dict(headers.items())
    after_s = retry_after_s(named, time.time())
    if after_s is None:
        if status != _TOO_MANY:
            return
        after_s = UNTOLD_AFTER_S
    after_s = min(max(after_s, _TOLD_MIN_S), THROTTLED_MAX_S)  # they may say anything
    way.block_bucket(quota.name, value, after_s)  # now: not when the job ends
    raise Throttled(quota, after_s, f"{quota.name} answered {status}", value=value)


class Permit:
    """A permit of a quota for one request. Made by ``quota.permit``.

    ``with quota.permit() as permit:`` takes it, and gives it back at the end of the
    block; ``async with`` does so without blocking the event loop. It is for one block.

    If its quota has a breaker, the block's end says how the request ended, unless
    `answered` or `failed` did: it has failed if an exception leaves the block, other
    than those of jobpool and a cancellation, which say nothing.
    """

    __slots__ = (
        "_bucket",
        "_channel",
        "_cost",
        "_find",
        "_has_block",
        "_n",
        "_quota",
        "_told",
        "_wait_s",
    )

    def __init__(
        self,
        quota: PermitQuota,
        cost: int,
        wait_s: float | None,
        find: Callable[[], Bucket],
    ) -> None:
        self._quota = quota
        self._cost = cost
        self._wait_s = wait_s
        self._find = find
        self._bucket: Bucket | None = None
        """None: its block has not begun."""
        self._channel: Channel | None = None
        self._n = 0
        self._has_block = False
        """A ``with`` has begun, whatever came of it."""
        self._told = False
        """It was said how its request ended."""

    def __del__(self) -> None:
        """Warn of one that never was taken: all looks well, and nothing is held."""
        if not self._has_block:
            name = self._quota.name
            warnings.warn(
                f"a permit of quota {name!r} was made and not taken, so that what came "
                "next was not counted: write `with quota.permit():` around the request",
                RuntimeWarning,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"<Permit of {self._quota.name}>"

    def __enter__(self) -> Self:
        """Take it, waiting in this thread.

        Raises:
            Snooze: there was none in time. Nothing is held.
            UsageError: see `Quota.permit`, or it had a block already. Nothing is held.
            StoreUnavailable: the supervisor is gone, and this attempt will be ended.
        """
        way = self._ask()
        try:
            while (reply := way.permit_answer(self._n, _LOOK_S)) is None:
                pass
            self._take(reply)
        except BaseException:
            way.return_permit(self._n)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Give it back, and say how its request ended if nobody has."""
        self._give_back(exc)

    async def __aenter__(self) -> Self:
        """Take it without blocking the event loop; otherwise as ``with``."""
        import asyncio  # noqa: PLC0415 - slow; whoever is here has it already

        way = self._ask()
        pause_s = _PAUSE_S_MIN
        try:
            while (reply := way.permit_answer(self._n, 0)) is None:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            self._take(reply)
        except BaseException:
            way.return_permit(self._n)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Give it back, and say how its request ended if nobody has."""
        self._give_back(exc)

    def answered(self, status: int, headers: Headers | None = None) -> None:
        """Say how the request was answered; tells everybody if it was one too many.

        A 429, and a 503 that says when to come back, block the quota's bucket on all
        hosts until the time that the answer names (``Retry-After`` in both forms,
        ``RateLimit-Reset``, ``X-RateLimit-Reset``), for 1 s to ``throttle_max``; a 429
        that names none, for 5 s. Then it raises `Throttled`, so that this attempt costs
        nothing and the job comes back by itself. Whatever else the answer was,
        nothing is raised: the quota's breaker, if it has one, counts the answer, from
        500 on as a failure.

        Args:
            status: the HTTP status.
            headers: the answer's headers.

        Raises:
            Throttled: the answer asks for patience. The bucket is blocked.
            UsageError: its block has not begun, or its attempt has ended; nothing is
                blocked.
        """
        if self._bucket is None or self._channel is None:
            raise self._untaken("answered")
        self._told = True
        report(self._channel, self._quota, self._bucket.value, status, headers)

    def failed(self) -> None:
        """Say that the request has failed, if no exception leaves the block for it.

        Nothing is raised. Only the breaker of the quota, if it has one, hears of it.

        Raises:
            UsageError: its block has not begun, or its attempt has ended.
        """
        if self._bucket is None or self._channel is None:
            raise self._untaken("failed")
        self._told = True
        self._channel.report_request(*self._bucket, failed=True)

    def _untaken(self, what: str) -> UsageError:
        self._has_block = True  # that it has none is said now
        return UsageError(
            f"{what}() of a permit of {self._quota.name!r} that was not taken: write "
            "`with quota.permit() as permit:` around the request"
        )

    def _ask(self) -> Channel:
        self._has_block = True
        way = channel()
        if way is None:
            raise UsageError(
                f"permit() of {self._quota.name!r} works only inside a handler that "
                "jobpool runs; here no attempt is running, and nothing was taken. When "
                "you call a handler directly (in a test), use jobpool.testing.running()"
                " around the call"
            )
        if self._bucket is not None:
            raise UsageError(
                f"this permit of {self._quota.name!r} had its block already; call "
                "permit() again for the next request. Nothing was taken"
            )
        bucket = self._find()
        self._refuse_self_wait(bucket)
        self._n = way.ask_permit(*bucket, self._cost, self._wait_s)
        self._bucket, self._channel = bucket, way
        return way

    def _refuse_self_wait(self, bucket: Bucket) -> None:
        """Refuse to wait for what only the end of a block around this one can free."""
        most = self._quota.definition.concurrency
        held = sum(one._cost for one in _around.get() if one._bucket == bucket)  # noqa: SLF001 - its own kind
        if most is not None and held + self._cost > most:
            raise UsageError(
                f"quota {bucket.quota!r} lets {most} be held at once, and the blocks "
                f"around this one hold {held}: a further {self._cost} would wait for "
                "itself. End the outer block first, or take all at once: "
                f"permit({held + self._cost}). Nothing was taken"
            )

    def _take(self, reply: PermitReply) -> None:
        name = self._quota.name
        if reply.refused:
            raise UsageError(f"no permit of {name!r}: {reply.refused}")
        if not reply.granted:
            soonest_s = max(reply.retry_in_s or _BACK_IN_S, 1.0)
            more_s = min(_BACK_IN_S * current().snoozes, _BACK_MORE_S)
            raise Snooze(
                soonest_s + more_s, f"quota {name} had no permit for it in time"
            )
        _around.set((*_around.get(), self))

    def _give_back(self, exc: BaseException | None) -> None:
        _around.set(tuple(one for one in _around.get() if one is not self))
        if self._channel is None or self._bucket is None:
            return
        if not self._told and (exc is None or _is_failure(exc)):
            self._channel.report_request(*self._bucket, failed=exc is not None)
        self._channel.return_permit(self._n)


def _is_failure(exc: BaseException) -> bool:
    return isinstance(exc, Exception) and not isinstance(exc, _SAYS_NOTHING)
