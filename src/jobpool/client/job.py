"""Job: the handle that `enqueue` and `get` return; it reads the store when used."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from jobpool.client.gateway import Gateway
from jobpool.core.clock import Clock, SystemClock
from jobpool.core.jobs.job import FINISHED, Attempt, JobState, NewJob
from jobpool.core.jobs.job import Job as StoredJob
from jobpool.core.safe_text import unstated_error
from jobpool.core.units import DurationLike, duration_s, show_duration
from jobpool.errors import (
    CodecMismatch,
    ConfigError,
    JobErased,
    JobNotFound,
    JobUnsuccessful,
    StoreError,
    UsageError,
    WaitTimeout,
)

if TYPE_CHECKING:
    from jobpool.operations.action import Action, Done

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
        job = self._gateway.encoding.job(self._finished(timeout))
        decoded: R = self._decode(successful(job).result)
        return decoded

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
        store = self._gateway.store("reading a job's arguments")
        job = self._gateway.read(self.id)
        payload = store.payload(self.id)
        if payload is None:
            raise JobNotFound(f"the arguments of job {self.id} are gone: it was pruned")
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

    def _finished(self, timeout: DurationLike | None) -> StoredJob:
        timeout_s = read_timeout(timeout)
        if timeout_s != 0:
            self._gateway.store("waiting for a job")
            self._gateway.refuse_in_transaction("waiting for a job")
        return wait_finished(self._gateway.read, self.id, timeout_s)


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
) -> bool:
    """Do to one job what a person can do, as this process's user.

    Args:
        gateway: to the store.
        verb: ``cancel``, ``retry`` or ``release``.
        job_id: the job.
        note: why, for the audit trail.
        states: only in these; empty: in all to which it applies.

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
    if operate(gateway, action(jobs=meant, note=note)):
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

    def late(job: StoredJob) -> str:
        return (
            f"job {job_id} ({job.kind}) is still {job.shown_state} after "
            f"{show_duration(timeout_s or 0)}; it is unaffected: wait longer, or "
            f"see `jobpool show {job_id}` and `jobpool status`"
        )

    return polled(
        lambda: read(job_id),
        lambda job: job.state in FINISHED,
        late,
        timeout_s,
        clock=clock,
        sleep=sleep,
    )


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
    clock = clock or SystemClock()
    deadline_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
    pause_s = PAUSE_S_MIN
    while True:
        left_s = None if deadline_s is None else deadline_s - clock.monotonic_s()
        state = read()
        if is_over(state):
            return state
        if left_s is not None and left_s <= 0:
            raise WaitTimeout(late(state))
        sleep(pause_s if left_s is None else min(pause_s, left_s))
        pause_s = min(pause_s * _PAUSE_GROWTH, most_s)


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
