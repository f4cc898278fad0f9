"""Job: the handle that `enqueue` and `get` return; it reads the store when used."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TypedDict,
    TypeVar,
    runtime_checkable,
)

import msgspec

from jobpool.client.declare.options import moment_ms
from jobpool.client.gateway import Gateway
from jobpool.core.clock import Clock, SystemClock
from jobpool.core.jobs.job import FINISHED, Attempt, JobState, NewJob
from jobpool.core.jobs.job import Job as StoredJob
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.safe_text import unstated_error
from jobpool.core.units import DurationLike, duration_s, show_duration
from jobpool.errors import (
    CodecMismatch,
    ConfigError,
    JobErased,
    JobUnsuccessful,
    StoreError,
    UsageError,
    WaitTimeout,
)

if TYPE_CHECKING:
    from jobpool.operations.action import Action, Done
    from jobpool.store.records.operating import Filter

R = TypeVar("R")
T = TypeVar("T")

PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 0.1
_PAUSE_GROWTH = 1.5
_ERROR_MAX = 500
"""Most characters of a handler's error that the message repeats."""


class Job(Generic[R]):
    """One job in the store. Made by jobpool, not by applications.

    Attributes:
        id: the job's number.
        kind: the handler's name.
        created: False if `enqueue` returned an existing job with the same key or
            unique text.
        replaced: it has given that job its arguments and options.
        postponed: it has also made it due later.
    """

    __slots__ = (
        "_decode",
        "_gateway",
        "created",
        "id",
        "kind",
        "postponed",
        "replaced",
    )

    def __init__(
        self,
        job_id: int,
        kind: str,
        *,
        created: bool,
        gateway: Gateway,
        decode: Callable[[bytes | None], Any],
        replaced: bool = False,
        postponed: bool = False,
    ) -> None:
        self.id = job_id
        self.kind = kind
        self.created = created
        self.replaced = replaced
        self.postponed = postponed
        self._gateway = gateway
        self._decode = decode

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return self.id == other.id and self._gateway is other._gateway

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def ref(self) -> str:
        """The job's id in a form that cannot be guessed; errors as for `info`.

        For URLs and other systems: `JobPool.get` takes it, and refuses one that this
        store did not give.
        """
        return self.info().ref

    @property
    def state(self) -> JobState:
        """The job's current state; errors as for `info`."""
        return self._gateway.read(self.id).state

    @property
    def progress(self) -> Any:
        """What its handler last reported with ``heartbeat(progress=)``, or None."""
        progress = self.info().progress
        return None if progress is None else msgspec.json.decode(progress)

    def info(self) -> StoredJob:
        """Read the whole record: counters, times, measurements, the last error.

        Raises:
            JobNotFound: it has been pruned.
            UsageError: this is a handler of a strict pool.
            StoreUnavailable: the store could not be read.
            CodecMismatch: it is encoded with another codec or key.
        """
        return self._gateway.encoding.job(self._gateway.read(self.id))

    def wait(self, timeout: DurationLike | None = None) -> JobState:
        """Wait until the job has finished, however it ended.

        Args:
            timeout: ``"5s"``, seconds or a timedelta; None: for ever; 0: check once.

        Returns:
            Its final state.

        Raises:
            WaitTimeout: it has not finished in time; it is unaffected.
            JobNotFound: it has been pruned.
            UsageError: this is a handler, where only ``timeout=0`` works.
        """
        return self._finished(timeout).state

    async def wait_async(
        self,
        timeout: DurationLike | None = None,
    ) -> JobState:
        """Wait without blocking the event loop; as `wait`."""
        return (await self._finished_async(timeout)).state

    def result(self, timeout: DurationLike | None = None) -> R:
        """Wait until the job has finished and return what its handler returned.

        Without a timeout it waits for ever, even if no supervisor runs.

        The result has the handler's annotated type: ``-> datetime`` gives a datetime.
        Without an annotation it is plain JSON.

        Args:
            timeout: as for `wait`.

        Raises:
            JobUnsuccessful: it is dead, quarantined or canceled; says why.
            CodecMismatch: it is encoded with another codec or key.
            WaitTimeout: it has not finished in time; it is unaffected.
            JobErased: its data was erased; says when.
            JobNotFound: it has been pruned.
            UsageError: this is a handler, where only ``timeout=0`` works.
        """
        return self._result_of(self._finished(timeout))

    async def result_async(
        self,
        timeout: DurationLike | None = None,
    ) -> R:
        """Wait for the result without blocking the event loop; as `result`."""
        return self._result_of(await self._finished_async(timeout))

    async def info_async(self) -> StoredJob:
        """Read the whole record without blocking the event loop; as `info`."""
        return await in_thread(self.info)

    async def cancel_async(self, *, note: str | None = None) -> bool:
        """Cancel the job without blocking the event loop; as `cancel`."""
        return await in_thread(lambda: self.cancel(note=note))

    def cancel(self, *, note: str | None = None) -> bool:
        """Cancel the job; a running one is killed when its supervisor next checks.

        Args:
            note: why, at most 1,000 characters; kept in the audit trail.

        Returns:
            False if it had already finished.

        Raises:
            JobNotFound: it has been pruned.
            UsageError: this is a handler; children never open the store.
        """
        return act(self._gateway, "cancel", self.id, note)

    def arguments(self) -> Any:
        """Read the job's arguments by name, as plain JSON values.

        Raises:
            JobNotFound: it has been pruned.
            JobErased: its data was erased; says when.
            CodecMismatch: they are encoded with another codec or key.
            StoreError: they are not JSON, or could not be read.
            UsageError: this is a handler; children never open the store.
        """
        payload = self._gateway.payload(self.id)
        job = self._gateway.read(self.id)
        if job.is_erased:
            raise JobErased(
                f"the arguments of job {self.id} are gone: {job.reason}; "
                f"`jobpool audit --job {self.id}` says by whom"
            )
        payload = self._gateway.encoding.decoded(payload, job.codec)
        try:
            return msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise StoreError(
                f"the stored arguments of job {self.id} are not JSON ({exc}): the row "
                "was written by hand, or its codec returns something else than it got"
            ) from exc

    def attempts(self) -> list[Attempt]:
        """Read the attempts that did not succeed, oldest first, with their tracebacks.

        Raises:
            JobNotFound: it has been pruned.
            CodecMismatch: they are encoded with another codec or key.
            StoreUnavailable: the store could not be read.
            UsageError: this is a handler; children never open the store.
        """
        store = self._gateway.store("reading a job's attempts")
        codec = self._gateway.read(self.id).codec
        return self._gateway.encoding.attempts(store.attempts(self.id), codec)

    def output(self) -> str | None:
        """Read what its successful attempt wrote, if that is kept; or its running one.

        Raises:
            JobNotFound: it has been pruned.
            CodecMismatch: it is encoded with another codec or key.
            StoreUnavailable: the store could not be read.
            UsageError: this is a handler; children never open the store.
        """
        store = self._gateway.store("reading a job's output")
        codec = self._gateway.read(self.id).codec
        kept = store.kept_output(self.id)
        text = kept.output if kept else store.output(self.id)
        return None if text is None else self._gateway.encoding.text(text, codec)

    def _result_of(self, finished: StoredJob) -> R:
        job = self._gateway.encoding.job(finished)
        decoded: R = self._decode(successful(job).result)
        return decoded

    def _finished(self, timeout: DurationLike | None) -> StoredJob:
        timeout_s = read_timeout(timeout)
        if timeout_s != 0:
            self._gateway.store("waiting for a job")
            self._gateway.refuse_in_transaction("waiting for a job")
        return wait_finished(self._gateway.read, self.id, timeout_s)

    async def _finished_async(
        self,
        timeout: DurationLike | None,
    ) -> StoredJob:
        timeout_s = read_timeout(timeout)
        if timeout_s != 0:
            self._gateway.refuse_in_transaction("waiting for a job")
            # Opening the store may take a while; and only this refuses a handler.
            await in_thread(lambda: self._gateway.store("waiting for a job"))
        return await polled_async(
            lambda: self._gateway.read(self.id),
            is_finished,
            late_words(timeout_s),
            timeout_s,
        )


@runtime_checkable
class HasKind(Protocol):
    """A handler."""

    @property
    def kind(self) -> str:
        """Its name in the queue."""
        ...


class JobFilter(TypedDict, total=False):
    """Which jobs are meant; every condition that is given must hold."""

    pool: str
    tenant: str
    key: str
    """One job of each kind can have it."""
    state: str | Iterable[str]
    """One of `JobState`, or several."""
    since: datetime | float
    """Ended, or if unfinished was created, at this moment or later."""
    text: str
    """Contained in its key, tenant or reason."""
    outcome: str
    """How its last attempt has ended: one of `Outcome`."""
    error_class: str
    """What that has raised: ``ConnectionError``, or with its module."""


def filter_of(kind: HasKind | str | None, which: JobFilter) -> Filter:
    """Return a filter as the store has it.

    Raises:
        UsageError: a condition does not exist, or has a wrong value.
    """
    from jobpool.store.records.operating import Filter  # noqa: PLC0415 - few need it

    given: dict[str, Any] = {**which}
    if unknown := given.keys() - JobFilter.__annotations__.keys():
        raise UsageError(
            f"there is no condition {min(unknown)!r}; use kind or "
            f"{', '.join(JobFilter.__annotations__)}"
        )
    wrong = [
        name
        for name in ("pool", "tenant", "key", "text", "error_class")
        if not isinstance(given.get(name, ""), str)
    ]
    if wrong or not isinstance(kind, (str, HasKind, NoneType)):
        raise UsageError(f"{wrong[0] if wrong else 'kind'}: expected text")
    if (since := given.pop("since", None)) is not None:
        given["since_ms"] = moment_ms(since, "since")
    if (states := given.pop("state", None)) is not None:
        given["states"] = _states([states] if isinstance(states, str) else states)
    if (outcome := given.get("outcome")) is not None:
        given["outcome"] = _outcome(outcome)
    if kind is not None:
        given["kind"] = kind if isinstance(kind, str) else kind.kind
    return Filter(**given)


def _states(names: Iterable[str]) -> tuple[JobState, ...]:
    try:
        return tuple(JobState(name) for name in names)
    except (ValueError, TypeError):
        raise UsageError(
            f"state: expected {', '.join(JobState)}, or several of them"
        ) from None


def _outcome(name: str) -> Outcome:
    try:
        return Outcome(name)
    except ValueError:
        raise UsageError(f"outcome: expected one of {', '.join(Outcome)}") from None


def read_timeout(timeout: DurationLike | None) -> float | None:
    """Return how long to wait, in seconds.

    Raises:
        UsageError: it is no duration.
    """
    try:
        return None if timeout is None else duration_s(timeout, "timeout")
    except ConfigError as exc:
        raise UsageError(str(exc)) from None


def act(
    gateway: Gateway,
    verb: str,
    job_id: int,
    note: str | None,
    states: tuple[str, ...] = (),
    **more: Any,
) -> bool:
    """Do to one job what a person can do, as this process's user.

    Args:
        gateway: to the store.
        verb: ``cancel``, ``retry`` or ``release``.
        job_id: the job.
        note: why, for the audit trail.
        states: only in these; empty: in all to which it applies.
        more: what else the action takes.

    Returns:
        Whether it was done.

    Raises:
        JobNotFound: no job has this id.
        UsageError: it cannot be done here, or the note is too long.
    """
    from jobpool.operations import jobs  # noqa: PLC0415 - see `operate`
    from jobpool.operations.selection import Selection  # noqa: PLC0415 - see `operate`

    action = {"cancel": jobs.Cancel, "retry": jobs.Retry, "release": jobs.Release}[verb]
    meant = Selection(ids=(job_id,), shown=states)
    if operate(gateway, action(jobs=meant, note=note, **more)):
        return True
    gateway.read(job_id)
    return False


def replace(
    gateway: Gateway, job_id: int, new: NewJob, schema: bytes, note: str | None
) -> int:
    """Replace a job that has ended by a new one with its options; return the new id.

    Args:
        gateway: to the store.
        job_id: the old job.
        new: the new one's kind, pool and arguments.
        schema: of the arguments.
        note: why, for the audit trail.

    Raises:
        JobNotFound: no job has this id.
        UsageError: it cannot be replaced; nothing was changed.
    """
    from jobpool.operations.action import Done  # noqa: PLC0415 - see `operate`
    from jobpool.operations.arguments.changes import (  # noqa: PLC0415 - see `operate`
        ALL,
        changed_paths,
    )
    from jobpool.operations.arguments.replay import (  # noqa: PLC0415 - see `operate`
        Replacement,
        Replay,
        successor,
    )
    from jobpool.operations.selection import Selection  # noqa: PLC0415 - see `operate`

    encoding = gateway.encoding

    def replacement(old: StoredJob, payload: bytes) -> Replacement:
        given = encoding.decoded(new.payload, new.codec)
        try:
            changed = changed_paths(encoding.decoded(payload, old.codec), given, schema)
        except CodecMismatch:  # Nobody can tell; the call says all that is needed.
            changed = (ALL,)
        if not changed and old.kind == new.kind:
            raise UsageError(
                "its arguments would be the same; to run it again as it is, use retry()"
            )
        made = successor(
            old,
            kind=new.kind,
            pool=new.pool,
            payload=new.payload,
            codec=new.codec,
            quota_values=new.quota_values,
        )
        return Replacement(made, changed)

    done = Done()
    action = Replay(jobs=Selection(ids=(job_id,)), replace=replacement, note=note)
    operate(gateway, action, done)
    if job_id in done.replaced_by:
        return done.replaced_by[job_id]
    gateway.read(job_id)
    raise UsageError(f"{'; '.join(done.refused)}. Nothing was replayed")


def operate(gateway: Gateway, action: Action, done: Done | None = None) -> bool:
    """Carry out an action as this process's user; return whether it changed anything.

    Raises:
        UsageError: it cannot be done here, or makes no sense; nothing was changed.
    """
    store = gateway.store(action.name)
    gateway.refuse_in_transaction(action.name)
    # Few of the programs that enqueue do this as well.
    from jobpool.operations import operate as layer  # noqa: PLC0415 - see above
    from jobpool.operations.principal import (  # noqa: PLC0415 - see above
        local_principal,
    )

    # Where Python is embedded there may be no arguments.
    (program, *_) = getattr(sys, "argv", ()) or ("",)
    name = program.rpartition("/")[2] or "interactive"
    principal = local_principal(f"Python ({name})")
    return layer.operate(store, principal, action, done).is_made


def wait_finished(
    read: Callable[[int], StoredJob],
    job_id: int,
    timeout_s: float | None,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> StoredJob:
    """Return a job once it has finished, however it ended.

    It polls after 1 ms, then less and less often, down to ten times a second. It does
    not rely on `Store.changed`, which reports each change to one thread only.

    Args:
        read: reads a job; raises JobNotFound if there is none.
        job_id: the job.
        timeout_s: most time to wait; None: for ever; 0: check once.
        clock: measures the time.
        sleep: waits.

    Raises:
        WaitTimeout: it has not finished in time; it is unaffected.
        JobNotFound: no job has this id, or no longer.
    """
    return polled(
        lambda: read(job_id),
        is_finished,
        late_words(timeout_s),
        timeout_s,
        clock=clock,
        sleep=sleep,
    )


def is_finished(job: StoredJob) -> bool:
    """Say whether a job has ended for good."""
    return job.state in FINISHED


def late_words(timeout_s: float | None) -> Callable[[StoredJob], str]:
    """Return what says of a job that it was not in time."""

    def late(job: StoredJob) -> str:
        return (
            f"job {job.id} ({job.kind}) is still {job.shown_state} after "
            f"{show_duration(timeout_s or 0)}; it is unaffected: wait longer, or "
            f"see `jobpool show {job.id}` and `jobpool status`"
        )

    return late


def polled(
    read: Callable[[], T],
    is_over: Callable[[T], bool],
    late: Callable[[T], str],
    timeout_s: float | None,
    *,
    most_s: float = PAUSE_S_MAX,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Read something until it is over; return what was read last.

    Args:
        read: reads it.
        is_over: says whether it is.
        late: says that it was not in time.
        timeout_s: most time to wait; None: for ever; 0: read once.
        most_s: the longest pause between two readings.
        clock: measures the time.
        sleep: waits.

    Raises:
        WaitTimeout: it is not over in time.
        Exception: whatever *read* raises.
    """
    patience = _Patience(timeout_s, most_s, clock or SystemClock())
    while True:
        patience.look()
        state = read()
        if is_over(state):
            return state
        sleep(patience.pause_s(late, state))


async def polled_async(
    read: Callable[[], T],
    is_over: Callable[[T], bool],
    late: Callable[[T], str],
    timeout_s: float | None,
    *,
    most_s: float = PAUSE_S_MAX,
) -> T:
    """Read something in threads until it is over; otherwise as `polled`."""
    import asyncio  # noqa: PLC0415 - as long to import as all of this

    patience = _Patience(timeout_s, most_s, SystemClock())
    while True:
        patience.look()
        state = await asyncio.to_thread(read)
        if is_over(state):
            return state
        await asyncio.sleep(patience.pause_s(late, state))


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function that reads or changes the store, without blocking the loop."""
    import asyncio  # noqa: PLC0415 - as long to import as all of this

    return await asyncio.to_thread(function)


class _Patience:
    """How long to pause between two looks, and when to give up."""

    def __init__(self, timeout_s: float | None, most_s: float, clock: Clock) -> None:
        self._clock, self._most_s, self._pause_s = clock, most_s, PAUSE_S_MIN
        self._deadline_s = None if timeout_s is None else self._now_s() + timeout_s
        self._left_s: float | None = None

    def _now_s(self) -> float:
        return self._clock.monotonic_s()

    def look(self) -> None:
        """Note the time before a look: what is seen later was in time."""
        if self._deadline_s is not None:
            self._left_s = self._deadline_s - self._now_s()

    def pause_s(self, late: Callable[[T], str], state: T) -> float:
        """Return the seconds until the next look.

        Raises:
            WaitTimeout: there was no time left at the last one.
        """
        pause_s, left_s = self._pause_s, self._left_s
        if left_s is not None and left_s <= 0:
            raise WaitTimeout(late(state))
        self._pause_s = min(pause_s * _PAUSE_GROWTH, self._most_s)
        return pause_s if left_s is None else min(pause_s, left_s)


def successful(job: StoredJob) -> StoredJob:
    """Return a finished job if it succeeded.

    Raises:
        JobErased: it did, and its result was erased.
        JobUnsuccessful: it did not; the message says how it ended.
    """
    if job.state is JobState.SUCCEEDED:
        if job.is_erased:
            raise JobErased(
                f"job {job.id} ({job.kind}) succeeded, but {job.reason}, and its "
                f"result with it; `jobpool audit --job {job.id}` says by whom"
            )
        return job
    error = unstated_error(job.reason, job.error_class, job.error)
    cut = "…" if len(error) > _ERROR_MAX else ""
    ended = str(job.outcome) if job.outcome else "never ran"
    parts = (ended, job.reason, f"{error[:_ERROR_MAX]}{cut}")
    evidence = "; ".join(filter(None, parts))
    raise JobUnsuccessful(
        f"job {job.id} ({job.kind}) is {job.state} and has no result: {evidence}; "
        f"see `jobpool show {job.id}`",
        job_id=job.id,
        state=job.state.value,
        outcome=job.outcome.value if job.outcome else None,
        error_class=job.error_class,
    )
