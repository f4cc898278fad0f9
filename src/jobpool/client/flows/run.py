"""FlowRun: the handle of a stored flow; it reads the store when used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from jobpool.client.flows.step import Step
from jobpool.client.flows.within import last_steps
from jobpool.client.gateway import Gateway
from jobpool.client.handler import Handler
from jobpool.client.job import (
    Job,
    in_thread,
    operate,
    polled,
    polled_async,
    read_timeout,
)
from jobpool.core.application.step_results import (
    PAGE_ROWS_MAX,
    MemberResult,
    ReadsResults,
    StepResults,
)
from jobpool.core.jobs.flow import (
    ENDED_STEPS,
    UNFINISHED_FLOWS,
    EnqueuedFlow,
    FlowState,
    StepState,
)
from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.units import DurationLike, show_duration
from jobpool.errors import FlowNotFound, FlowUnsuccessful, UsageError
from jobpool.store.records.flows import FlowDetail, FlowFilter, FlowRow, StepRow

if TYPE_CHECKING:
    from jobpool.store.protocol import Store

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_PAUSE_S_MAX = 1.0
"""Between two readings of all steps, of which there may be thousands."""
_NAMED_MAX = 5
"""Most steps that a message names."""
_BAD = (JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED)


class FlowProgress(NamedTuple):
    """How far a flow is, counted in jobs, those of its hooks not included."""

    ended: int
    """Those that have ended, or will never begin."""
    failed: int
    """Those of them that are dead, quarantined or canceled."""
    total: int


_Both = tuple[FlowDetail, StepRow]
"""A flow, and one of its steps as it is then."""


class FlowRun(Generic[R_co]):
    """One stored flow. Made by jobpool, not by applications.

    What needs the store cannot be used inside a handler.

    Attributes:
        id: the flow's number.
        ref: its id in a form that cannot be guessed, for URLs and other systems.
        created: False if `Flow.enqueue` returned an existing flow with the same key.
    """

    __slots__ = ("_decoder_of", "_gateway", "created", "id", "ref")

    def __init__(
        self,
        flow_id: int,
        ref: str,
        *,
        created: bool,
        gateway: Gateway,
        decoder_of: Callable[[str], Callable[[bytes | None], Any]],
    ) -> None:
        self.id = flow_id
        self.ref = ref
        self.created = created
        self._gateway = gateway
        self._decoder_of = decoder_of

    def __repr__(self) -> str:
        return f"<FlowRun {self.id}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FlowRun):
            return NotImplemented
        return self.id == other.id and self._gateway is other._gateway

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def state(self) -> FlowState:
        """The flow's current state; errors as for `info`."""
        return self._row().state

    @property
    def progress(self) -> FlowProgress:
        """How far it is; errors as for `info`."""
        ended = failed = total = 0
        for step in self.info().steps:
            if step.hook is None:
                total += sum(step.jobs.values())
                ended += sum(step.jobs.get(state, 0) for state in FINISHED)
                failed += sum(step.jobs.get(state, 0) for state in _BAD)
        return FlowProgress(ended, failed, total)

    def info(self) -> FlowDetail:
        """Read the whole record: its steps, with how many jobs are in which state.

        Raises:
            FlowNotFound: it has been pruned.
            StoreUnavailable: the store could not be read.
            UsageError: this is a handler; children never open the store.
        """
        detail = self._store().flow(self.id)
        if detail is None:
            raise self._not_found()
        return detail

    def wait(self, timeout: DurationLike | None = None) -> FlowState:
        """Wait until the flow has ended, its hooks included.

        Args:
            timeout: ``"5s"``, seconds or a timedelta; None: for ever; 0: check once.

        Returns:
            Its final state.

        Raises:
            WaitTimeout: it has not ended in time; it is unaffected.
            FlowNotFound: it has been pruned.
            UsageError: this is a handler; children never open the store.
        """
        return self._ended(timeout).state

    async def wait_async(
        self,
        timeout: DurationLike | None = None,
    ) -> FlowState:
        """Wait without blocking the event loop; as `wait`."""
        timeout_s = self._timeout_s(timeout)
        row = await polled_async(self._row, _is_over, self._still(timeout_s), timeout_s)
        return row.state

    @overload
    def result(self, /, *, timeout: DurationLike | None = None) -> R_co: ...
    @overload
    def result(self, step: Step[R], /, *, timeout: DurationLike | None = None) -> R: ...
    @overload
    def result(self, step: str, /, *, timeout: DurationLike | None = None) -> Any: ...
    def result(
        self,
        step: Step[Any] | str | None = None,
        /,
        *,
        timeout: DurationLike | None = None,
    ) -> Any:
        """Return the result of a step, waiting for its end; for ever without workers.

        Args:
            step: what `Flow.add` has returned, or `Flow.add_many`: the list of all
                its results; or its name. None: of the one step after which there is
                no other, once the flow has ended.
            timeout: as for `wait`.

        Raises:
            FlowUnsuccessful: the step has not succeeded; says why.
            WaitTimeout: it has not ended in time; it is unaffected.
            CodecMismatch: its result is encoded with another codec or key.
            JobErased: its result was erased.
            FlowNotFound: the flow has been pruned.
            UsageError: *step* is not one of this flow; or None, and there are several
                without another after them. Or this is a handler.
        """
        if step is None:
            row = self._ended(timeout)
            detail = self.info()
            if row.state is not FlowState.SUCCEEDED:
                raise self._unsuccessful(detail, f"has {_ENDED[row.state]}")
            lasts, many = last_steps(detail.steps), None
        else:
            detail, stored = self._ended_step(step, timeout)
            if stored.state is StepState.SKIPPED or stored.failed:
                was_skipped = stored.state is StepState.SKIPPED and stored.jobs
                how = "was skipped" if was_skipped else "has failed"
                raise self._unsuccessful(
                    detail, f"has no result of {stored.name}, which {how}"
                )
            lasts = last_steps(detail.steps, stored.number)
            many = step.many if isinstance(step, Step) else None
        if len(lasts) != 1:
            names = ", ".join(one.name for one in lasts[:_NAMED_MAX])
            of = f"flow {detail.row.id}" if step is None else f"{step!r}"
            raise UsageError(
                f"result: {len(lasts)} steps of {of} have no other after them "
                f"({names}); name one: run.result(step)"
            )
        values = list(self._results((lasts[0].number,), self._decoded))
        if many is None:
            many = len(values) != 1
        return values if many else values[0]

    @overload
    async def result_async(self, /, *, timeout: DurationLike | None = None) -> R_co: ...
    @overload
    async def result_async(
        self, step: Step[R], /, *, timeout: DurationLike | None = None
    ) -> R: ...
    @overload
    async def result_async(
        self, step: str, /, *, timeout: DurationLike | None = None
    ) -> Any: ...
    async def result_async(
        self,
        step: Step[Any] | str | None = None,
        /,
        *,
        timeout: DurationLike | None = None,
    ) -> Any:
        """Wait for a result without blocking the event loop; as `result`."""
        if step is None:
            await self.wait_async(timeout)
            return await in_thread(lambda: self.result(timeout=0))
        timeout_s = self._timeout_s(timeout)
        await polled_async(
            lambda: self._with_step(step),
            _has_ended,
            self._still_at(step, timeout_s),
            timeout_s,
            most_s=_PAUSE_S_MAX,
        )
        return await in_thread(lambda: self.result(step, timeout=0))

    @overload
    def job(self, step: Step[R], /) -> Job[R]: ...
    @overload
    def job(self, step: str, /) -> Job[Any]: ...
    def job(self, step: Step[Any] | str, /) -> Job[Any]:
        """Return the handle of a step's one job, such as that of an external step.

        Args:
            step: what `Flow.add` or `Flow.wait_for` has returned, or its name.

        Raises:
            FlowNotFound: the flow has been pruned.
            UsageError: it is not a step of this flow, or has not just one job.
        """
        stored = self._stored(self.info(), step)
        if stored.first_job is None or sum(stored.jobs.values()) != 1:
            raise UsageError(
                f"job: step {stored.name} of flow {self.id} has "
                f"{sum(stored.jobs.values())} jobs; results() reads what they return"
            )
        kind = self._gateway.read(stored.first_job).kind
        return self._handle(stored.first_job, kind)

    @overload
    def results(self, /) -> StepResults[tuple[Job[Any], Any]]: ...
    @overload
    def results(self, handler: ReadsResults[R], /) -> StepResults[R]: ...
    def results(self, handler: ReadsResults[Any] | None = None, /) -> StepResults[Any]:
        """Return the results that there are, in the order in which jobs were added.

        Args:
            handler: only those of this handler. None: of all, each with its job.

        Returns:
            What can be looped over, again and again, and reads a page at a time.

        Raises:
            UsageError: it is not a handler, or this runs in one. A loop over what is
                returned raises CodecMismatch, JobErased and StoreUnavailable.
        """
        if handler is None:
            return self._results(None, self._with_job)
        if not isinstance(handler, Handler):
            raise UsageError(
                f"results: expected a handler, got {type(handler).__name__}"
            )
        decode = handler.decode_result
        return self._results(None, lambda row: decode(row.result), handler.kinds)

    def cancel(self, *, note: str | None = None) -> bool:
        """Cancel what has not ended of the flow; what runs is asked to stop.

        Its hooks for failure and for any end run.

        Args:
            note: why, at most 1,000 characters; kept in the audit trail.

        Returns:
            False if it had ended already, or was canceled.

        Raises:
            UsageError: this is a handler; children never open the store.
        """
        from jobpool.operations.flows import CancelFlow  # noqa: PLC0415 - see `operate`

        return operate(self._gateway, CancelFlow(flow=self.id, note=note))

    def pause(self, *, note: str | None = None) -> bool:
        """Let nothing more of the flow begin; what runs goes on. As `cancel`.

        Returns:
            False if it is not open.
        """
        from jobpool.operations.flows import PauseFlow  # noqa: PLC0415 - see `operate`

        return operate(self._gateway, PauseFlow(flow=self.id, note=note))

    def resume(self, *, note: str | None = None) -> bool:
        """Let a paused flow go on. As `cancel`.

        Returns:
            False if it is not paused.
        """
        from jobpool.operations.flows import ResumeFlow  # noqa: PLC0415 - see `operate`

        return operate(self._gateway, ResumeFlow(flow=self.id, note=note))

    def retry(self, *jobs: Job[Any], note: str | None = None) -> bool:
        """Let the flow go on after its end, in a new generation. As `cancel`.

        Members that have failed run again, with fresh attempts, and so does all that
        is after them. What succeeded before keeps its results; the hooks run again.

        Args:
            jobs: of those that have failed only these run again, and what was left out
                since the flow was ending; then the flow need not have ended.
            note: as for `cancel`.

        Returns:
            False if it has not ended and no jobs are given, or nothing has failed.

        Raises:
            UsageError: something that would begin anew runs, was erased, or is too
                much at once; or one of *jobs* has not failed. Nothing was changed.
        """
        for job in jobs:
            if not isinstance(job, Job):
                raise UsageError(
                    f"retry: expected jobs, got {type(job).__name__}: run.job(step) "
                    "and jobs.get(ref) return some; nothing was changed"
                )
        from jobpool.operations.flows import RetryFlow  # noqa: PLC0415 - see `operate`

        return operate(
            self._gateway,
            RetryFlow(flow=self.id, jobs=tuple(job.id for job in jobs), note=note),
        )

    def _ended(self, timeout: DurationLike | None) -> FlowRow:
        timeout_s = self._timeout_s(timeout)
        return polled(self._row, _is_over, self._still(timeout_s), timeout_s)

    def _still(self, timeout_s: float | None) -> Callable[[FlowRow], str]:
        return lambda row: self._late(f"is still {row.state}", timeout_s)

    def _ended_step(self, step: Step[Any] | str, timeout: DurationLike | None) -> _Both:
        """Wait for a step's end; return the flow and the step as they are then."""
        timeout_s = self._timeout_s(timeout)
        return polled(
            lambda: self._with_step(step),
            _has_ended,
            self._still_at(step, timeout_s),
            timeout_s,
            most_s=_PAUSE_S_MAX,
        )

    def _with_step(self, step: Step[Any] | str) -> _Both:
        detail = self.info()
        return detail, self._stored(detail, step)

    def _still_at(
        self, step: Step[Any] | str, timeout_s: float | None
    ) -> Callable[[_Both], str]:
        return lambda both: self._late(f"has {step!r} still {both[1].state}", timeout_s)

    def _stored(self, detail: FlowDetail, step: Step[Any] | str) -> StepRow:
        """Return a step as stored.

        Raises:
            UsageError: it is none of this flow, or several have the name.
        """
        if isinstance(step, Step):
            found = detail.steps[step.number : step.number + 1]
            name = step.name
        elif isinstance(step, str):
            found, name = detail.steps, step
        else:
            raise UsageError(
                "expected a step, as add() has returned it, or its name, got "
                f"{type(step).__name__}"
            )
        named = [stored for stored in found if stored.name == name]
        if len(named) != 1:
            several = f"{len(named)} steps of" if named else "not a step of"
            raise UsageError(
                f"{step!r} is {several} flow {self.id} ({detail.row.name})"
            )
        return named[0]

    def _results(
        self,
        numbers: Sequence[int] | None,
        value: Callable[[MemberResult], R],
        kinds: frozenset[str] | None = None,
    ) -> StepResults[R]:
        store, encoding = self._store(), self._gateway.encoding

        def page(after_id: int) -> list[MemberResult]:
            return [
                MemberResult(
                    row.job_id,
                    row.number,
                    row.kind,
                    None
                    if row.result is None
                    else encoding.decoded(row.result, row.codec),
                    is_erased=row.is_erased,
                )
                for row in store.step_results(
                    self.id, numbers, after_id=after_id, limit=PAGE_ROWS_MAX
                )
            ]

        return StepResults(page, value, kinds)

    def _decoded(self, row: MemberResult) -> Any:
        return self._decoder_of(row.kind)(row.result)

    def _with_job(self, row: MemberResult) -> tuple[Job[Any], Any]:
        job = self._handle(row.job_id, row.kind)
        return job, self._decoded(row)

    def _handle(self, job_id: int, kind: str) -> Job[Any]:
        decode = self._decoder_of(kind)
        return Job(job_id, kind, created=False, gateway=self._gateway, decode=decode)

    def _row(self) -> FlowRow:
        rows = self._store().flows(FlowFilter(ids=(self.id,)), 1)
        if not rows:
            raise self._not_found()
        return rows[0]

    def _store(self) -> Store:
        return self._gateway.store("reading a flow")

    def _timeout_s(self, timeout: DurationLike | None) -> float | None:
        self._gateway.refuse_in_transaction("waiting for a flow")
        return read_timeout(timeout)

    def _not_found(self) -> FlowNotFound:
        return FlowNotFound(f"flow {self.id} is gone: it was pruned")

    def _late(self, how: str, timeout_s: float | None) -> str:
        return (
            f"flow {self.id} {how} after {show_duration(timeout_s or 0)}; it is "
            f"unaffected: wait longer, or see `jobpool flows show {self.ref}`"
        )

    def _unsuccessful(self, detail: FlowDetail, what: str) -> FlowUnsuccessful:
        failed = [
            f"{step.name} ({sum(step.jobs.get(one, 0) for one in _BAD)} of "
            f"{sum(step.jobs.values())} jobs)"
            for step in detail.steps
            if step.failed and step.state is StepState.DONE
        ]
        named = ", ".join(failed[:_NAMED_MAX])
        more = f" and {len(failed) - _NAMED_MAX} more" if failed[_NAMED_MAX:] else ""
        why = f"; failed: {named}{more}" if failed else ""
        row = detail.row
        return FlowUnsuccessful(
            f"flow {row.id} ({row.name}) {what}{why}; see `jobpool flows show "
            f"{row.ref}`",
            flow_id=row.id,
            state=row.state.value,
        )


_ENDED = {FlowState.FAILED: "failed", FlowState.CANCELED: "been canceled"}


def _is_over(row: FlowRow) -> bool:
    return row.state not in UNFINISHED_FLOWS


def _has_ended(both: _Both) -> bool:
    """Say whether a step has ended, or never will: its flow has."""
    return both[1].state in ENDED_STEPS or _is_over(both[0].row)


def found_flow(gateway: Gateway, ref: int | str) -> EnqueuedFlow:
    """Return the flow of a ref or an id.

    Raises:
        FlowNotFound: there is none.
        UsageError: it is neither, or this is a handler.
    """
    if isinstance(ref, bool) or not isinstance(ref, int | str):
        raise UsageError(
            f"get_flow: expected the ref of a flow or its id, got {type(ref).__name__}"
        )
    store = gateway.store("reading a flow")
    flow_id = store.flow_id_of(ref) if isinstance(ref, str) else ref
    rows = [] if flow_id is None else store.flows(FlowFilter(ids=(flow_id,)), 1)
    if not rows:
        raise FlowNotFound(
            f"no flow has this {'id' if isinstance(ref, int) else 'ref'} in "
            f"{store.url}; it may have been pruned, or is in another store"
        )
    (row,) = rows
    return EnqueuedFlow(row.id, created=False, state=row.state, ref=row.ref)
