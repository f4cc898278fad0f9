"""Flow: a graph of calls, built step by step and stored as a whole.

Theory of operation. A flow object holds steps, edges and calls, or generators of calls;
nothing is stored before `Flow.enqueue`. A step can only be after steps that exist, so
no circle can be built. `enqueue` consumes the generators while the store writes: memory
stays bounded, and the flow is visible as a whole or not at all.

An argument may hold a value that another step will have. It says what the step is
after, too. A generator is consumed when edges are stored already, so its step must
name in ``after`` whatever its calls hold.

A flow that is added to another is copied (`within`). Its calls go on naming steps as in
the flow that they were made for; the `Origin` of a node says how to read them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from jobpool.client.declare.declaration import checked_kind, positive_s
from jobpool.client.declare.options import checked_priority, checked_text
from jobpool.client.flows.node import Node, Origin
from jobpool.client.flows.step import Step
from jobpool.client.flows.within import Part, Whole, copied
from jobpool.client.gateway import Gateway
from jobpool.client.handler import Call
from jobpool.core.application.placeholders import shifted
from jobpool.core.jobs.flow import (
    EnqueuedFlow,
    Failure,
    Hook,
    NewFlow,
    When,
)
from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.quotas.lanes import placed
from jobpool.core.units import DurationLike
from jobpool.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jobpool.client.flows.run import FlowRun

R = TypeVar("R")
Condition = Literal["succeeded", "failed", "finished"]
Steps = Step[Any] | Iterable[Step[Any]]
EXTERNAL = "external."
"""The beginning of the kind of a step that ends from outside."""
_POOL = "external"
"""Of its job, which no supervisor runs."""
_NOT_STORED = "; nothing was stored"


class Flow(Part[Any]):
    """A graph of calls, stored by `enqueue` as a whole. Made by `JobPool.flow`.

    Args:
        gateway: where it goes.
        run_of: returns the handle of the stored flow.
        name: what it is, such as ``"nightly-report"``.
        key: idempotency key: of the flows of this name, one has it.
        tenant: on whose behalf its jobs run, if their options do not say.
        priority: of its jobs whose options do not say one; None: 0.
        failure: ``"fail"`` or ``"continue"``; None: as the flow that it is added to,
            or ``"fail"``.

    Raises:
        UsageError: a value is wrong.
    """

    def __init__(
        self,
        gateway: Gateway,
        run_of: Callable[[EnqueuedFlow], FlowRun[Any]],
        name: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        priority: int | None = None,
        failure: Literal["fail", "continue"] | None = None,
    ) -> None:
        checked = checked_text(name, "name")
        if checked is None:
            raise UsageError("name: a flow needs one, such as 'nightly-report'")
        self._gateway = gateway
        self._run_of = run_of
        self._name = checked
        self._key = checked_text(key, "key")
        self._tenant = checked_text(tenant, "tenant")
        self._priority = checked_priority(priority)
        self._failure = (
            None if failure is None else _one_of(failure, Failure, "failure")
        )
        self._nodes: list[Node] = []
        self._origin = Origin(self)
        self._wholes: dict[int, Whole[Any]] = {}
        """By the numbers of their last steps."""
        self._spent = ""

    def __repr__(self) -> str:
        return f"<Flow {self._name} of {len(self._nodes)} steps>"

    def add(
        self,
        call: Call[R] | Part[R],
        /,
        *,
        after: Steps = (),
        when: Condition = "succeeded",
        name: str | None = None,
    ) -> Step[R]:
        """Add a step of one job; or the steps of a flow or chain, and one for them all.

        Args:
            call: ``handler.call(...)``, also with `Step.value` among its arguments,
                which imply *after*. Or a flow or chain: its steps are copied as they
                are now, its hooks become steps after them, and generators of its jobs
                go to this flow.
            after: the steps that must have ended before it begins; none: it begins at
                once.
            when: how they must have ended. If one has not ended so, the step is
                skipped.
            name: as it is shown; by default the handler's kind, or the inner flow's
                name. It stands before the names of inner steps, with a slash.

        Returns:
            The step. For a flow, one without jobs, which ends when all of its steps
            have ended, and has failed if one of them has; its value is that of the one
            last step.

        Raises:
            UsageError: a step is of another flow, the call has an option that does
                not go with flows, or a value is wrong. Or the inner flow has a key,
                wants another ``failure=``, has no steps or no generators any more, or
                is this one or another `JobPool`'s. Nothing was added.
        """
        conditions = self._conditions(after, when)
        if when != "succeeded" and not conditions:
            raise UsageError(
                f"add: when={when!r} says how the steps in after= must have ended; "
                "name some. Nothing was added"
            )
        if isinstance(call, Part):
            inner: Flow = call._as_flow()  # noqa: SLF001 - its other half
            return self._add_whole(inner, conditions, name)
        job = self._checked(call, "add")
        for number, one in self._needed(call).items():
            if conditions.setdefault(number, one) != one:
                raise UsageError(
                    f"add: {self._nodes[number].step} has a value only if it has "
                    f"succeeded, and when={when!r}; current().results() has what "
                    "there is. Nothing was added"
                )
        step = self._step(name, job.kind, many=False)
        self._nodes.append(Node(step, conditions, (call,), self._origin))
        return step

    def add_many(
        self,
        calls: Iterable[Call[R]],
        /,
        *,
        after: Steps = (),
        when: Condition = "succeeded",
        name: str | None = None,
    ) -> Step[list[R]]:
        """Add a step of many jobs, which are all done before those after it begin.

        Args:
            calls: calls, or a generator of them of any length, which `enqueue`
                consumes. If they hold the value of a step, *after* must name it.
            after: as for `add`.
            when: as for `add`.
            name: as it is shown; by default the kind of the first job.

        Returns:
            The step; its value is the list of all results, in the order of the calls.

        Raises:
            UsageError: as for `add`.
        """
        if isinstance(calls, Call) or not isinstance(calls, Iterable):
            raise UsageError(
                "add_many: expected a list or generator of calls, such as "
                f"handler.call(...), got {type(calls).__name__}; nothing was added"
            )
        conditions = self._conditions(after, when)
        step = self._step(name, "", many=True)
        self._nodes.append(Node(step, conditions, calls, self._origin))
        return step

    def wait_for(
        self,
        name: str,
        /,
        *,
        after: Steps = (),
        when: Condition = "succeeded",
        timeout: DurationLike | None = None,
    ) -> Step[Any]:
        """Add a step that ends from outside: by `JobPool.approve`, or by its time.

        It takes a row, not a slot, however long that lasts.

        Args:
            name: what is waited for, such as ``"approval"``.
            after: as for `add`.
            when: as for `add`.
            timeout: counted from when the steps before it have ended; then it has
                failed. None: it waits for ever.

        Returns:
            The step; its value is what was given with the approval.

        Raises:
            UsageError: as for `add`.
        """
        try:
            kind = checked_kind(f"{EXTERNAL}{name}")
            timeout_s = positive_s(timeout, "timeout")
        except ConfigError as exc:
            raise UsageError(f"wait_for: {exc}; nothing was added") from None
        conditions = self._conditions(after, when)
        step = self._step(name, name, many=False)
        timeout_ms = None if timeout_s is None else max(1, round(timeout_s * 1000))
        waiting = NewJob(kind=kind, pool=_POOL, payload=b"{}")
        node = Node(step, conditions, (waiting,), self._origin, True, timeout_ms)
        self._nodes.append(node)
        return step

    def on_success(self, call: Call[R], /, *, name: str | None = None) -> Step[R]:
        """Run a job at the end of the flow if it has succeeded; see `on_finish`."""
        return self._add_hook(call, Hook.SUCCESS, name)

    def on_failure(self, call: Call[R], /, *, name: str | None = None) -> Step[R]:
        """Run a job at the end of the flow if not, or canceled; see `on_finish`."""
        return self._add_hook(call, Hook.FAILURE, name)

    def on_finish(self, call: Call[R], /, *, name: str | None = None) -> Step[R]:
        """Run a job at the end of the flow, however it has ended.

        Once all other steps have ended. How the hook itself ends does not change how
        the flow has.

        Args:
            call: ``handler.call(...)``.
            name: as it is shown; by default the handler's kind.

        Raises:
            UsageError: as for `add`. Or the call holds the value of a step.
        """
        return self._add_hook(call, Hook.FINISH, name)

    def enqueue(self, *, connection: Any = None) -> FlowRun[Any]:
        """Store the flow; it is durable, and visible as a whole, once this returns.

        Inside a handler the supervisor stores it, of up to 10,000 jobs, and this
        returns after the commit; what the handle reads cannot be read there.

        Args:
            connection: the caller's own connection, as for ``handler.options``: the
                flow, of up to 10,000 jobs, commits or vanishes with its transaction.

        Returns:
            Its handle, or that of the flow with the same name and key.

        Raises:
            ArgumentsRejected: a call of a generator does not fit.
            UsageError: it has no steps, was stored already, or cannot be stored here.
            QueueFull: too many jobs are waiting.
            StoreError: the store cannot be used. In all cases nothing was stored.
        """
        if self._spent:
            raise UsageError(f"{self._spent}; build another one. Nothing was stored")
        if not self._nodes:
            raise UsageError("the flow has no steps; add() some. Nothing was stored")
        if any(node.is_stream for node in self._nodes):
            self._spent = "the generators of this flow are used up"
        first, streams = [], []
        for node in self._nodes:
            stream = iter(node.calls)
            first.append(next(stream, None))
            streams.append(
                stream if first[-1] is None else itertools.chain(first[-1:], stream)
            )
        for node, call in zip(self._nodes, first, strict=True):
            node.step.name = _name_of(node, call)
        flow = NewFlow(
            name=self._name,
            key=self._key,
            tenant=self._tenant,
            failure=self._failure or Failure.FAIL,
            steps=tuple(node.record() for node in self._nodes),
        )
        stored = self._gateway.enqueue_flow(flow, self._members(streams), connection)
        self._spent = "this flow was stored already"
        return self._run_of(stored)

    async def enqueue_async(self, *, connection: Any = None) -> FlowRun[Any]:
        """Store the flow without blocking the event loop; otherwise as `enqueue`.

        Its generators are consumed in a thread.

        Args:
            connection: as for `enqueue`, also an asynchronous one.
        """
        return await self._gateway.in_thread(
            connection, lambda stand_in: self.enqueue(connection=stand_in)
        )

    def _members(
        self, streams: Iterable[Iterator[Any]]
    ) -> Iterator[tuple[int, NewJob]]:
        for node, stream in zip(self._nodes, streams, strict=True):
            number, many, origin = node.step.number, node.step.many, node.origin
            for index, call in enumerate(stream):
                if isinstance(call, NewJob):
                    yield number, self._completed(call, origin, has_priority=False)
                    continue
                where = "add_many" if many else "add"
                job = self._checked(call, where, index if many else None, origin.flow)
                needs = [origin.shift + value.number for value in call.needs]
                for needed in needs if many else ():
                    if node.after.get(needed) != When.SUCCEEDED:
                        raise UsageError(
                            f"add_many: call {index} (the first is 0) of {node.step} "
                            f"holds the value of {self._nodes[needed].step}, "
                            "which is not among the steps in after= that must have "
                            "succeeded"
                            f"{_NOT_STORED}"
                        )
                if needs and origin.shift:
                    job = self._shifted(job, origin.shift)
                job = self._completed(job, origin, has_priority=call.has_priority)
                yield number, job

    def _completed(self, job: NewJob, origin: Origin, *, has_priority: bool) -> NewJob:
        """Return a job with what its own options leave to the flow."""
        tenants = (job.tenant, origin.tenant, self._tenant)
        tenant = next((one for one in tenants if one is not None), None)
        if has_priority:
            return placed(job, tenant, job.priority)
        priorities = (origin.priority, self._priority, 0)
        priority = next(one for one in priorities if one is not None)
        return placed(job, tenant, priority)

    def _shifted(self, job: NewJob, by: int) -> NewJob:
        """Return a job whose arguments name the steps of this flow, not of its own."""
        encoding = self._gateway.encoding
        payload = shifted(encoding.decoded(job.payload, job.codec), by)
        # Its size was checked when it was packed; a few digits more do not matter.
        packed = encoding.payload(payload, job.kind, sys.maxsize)
        return msgspec.structs.replace(job, payload=packed)

    def _checked(
        self,
        call: Any,
        where: str,
        index: int | None = None,
        flow: object | None = None,
    ) -> NewJob:
        """Return the job of a call that may be a step's.

        Raises:
            UsageError: it may not.
        """
        problem = _problem(call, flow or self)
        if problem:
            at = "" if index is None else f" call {index} (the first is 0):"
            raise UsageError(f"{where}:{at} {problem}{_NOT_STORED}")
        job: NewJob = call.packed
        return job

    def _add_whole(
        self, inner: Flow, conditions: Mapping[int, When], name: str | None
    ) -> Whole[Any]:
        """Copy the steps of another flow; return the step that stands for them."""
        name = checked_text(name, "name") or inner._name
        if problem := self._problem_within(inner):
            raise UsageError(f"add: {inner!r} {problem}; nothing was added")
        first = len(self._nodes)
        within = Origin(self, first, f"{name}/", inner._tenant, inner._priority)
        nodes, whole = copied(inner._nodes, within, name, conditions)
        for node in nodes:
            checked_text(node.step.name or None, "name")
        if any(node.is_stream for node in nodes):
            inner._spent = f"the generators of this flow went to {self!r}"
        self._failure = self._failure or inner._failure
        self._nodes += nodes
        self._wholes |= {last.number: whole for last in whole.lasts}
        return whole

    def _problem_within(self, inner: Flow) -> str:
        """Return why another flow cannot be added to this one; "": it can."""
        failure = self._failure or Failure.FAIL
        fits = inner._failure in (None, failure)
        is_used = inner._spent and any(node.is_stream for node in inner._nodes)
        problems = {
            "is this flow itself": inner is self,
            "is of another JobPool": inner._gateway is not self._gateway,
            "has a key, which only a flow has that is stored by itself": inner._key,
            "has no steps but hooks; add() some": all(
                node.step.hook is not None for node in inner._nodes
            ),
            f"has failure={str(inner._failure)!r}, and this flow {str(failure)!r}, "
            "which holds for all steps of a stored flow": not fits,
            f"is used up: {inner._spent}; build another one": is_used,
        }
        return next((one for one, is_so in problems.items() if is_so), "")

    def _as_flow(self) -> Flow:
        return self

    def _add_hook(self, call: Call[R], hook: Hook, name: str | None) -> Step[R]:
        job = self._checked(call, f"on_{hook}")
        if call.needs:
            raise UsageError(
                f"on_{hook}: a hook has no steps before it, whose values it could get; "
                "current().results() has those of the flow. Nothing was added"
            )
        step = self._step(name, job.kind, many=False, hook=hook)
        self._nodes.append(Node(step, {}, (call,), self._origin))
        return step

    def _step(
        self, name: str | None, default: str, *, many: bool, hook: Hook | None = None
    ) -> Step[Any]:
        name = checked_text(name, "name") or default
        return Step(self, len(self._nodes), name, many=many, hook=hook)

    def _conditions(self, after: Steps, when: str) -> dict[int, When]:
        condition = _one_of(when, When, "when")
        found: dict[int, When] = {}
        for step in self._steps(after):
            whole = step if isinstance(step, Whole) else None
            found |= whole.conditions(condition) if whole else {step.number: condition}
        return found

    def _needed(self, call: Call[Any]) -> dict[int, When]:
        """Return what must have succeeded for the values that a call holds."""
        numbers = [value.number for value in call.needs]
        steps = [self._wholes.get(one, self._nodes[one].step) for one in numbers]
        return self._conditions(steps, "succeeded")

    def _steps(self, after: Steps) -> list[Step[Any]]:
        steps: Any = (after,) if isinstance(after, Step) else after
        if not isinstance(steps, Iterable):
            raise UsageError(
                f"after: expected steps of this flow, got {type(after).__name__}; "
                "nothing was added"
            )
        found = []
        for step in steps:
            if not isinstance(step, Step) or not step.is_of(self):
                raise UsageError(
                    "after: expected what add() or add_many() of this flow returned, "
                    f"got {step!r:.60}; nothing was added"
                )
            if step.hook is not None:
                raise UsageError(
                    f"after: {step!r} is a hook, which runs once all steps have "
                    "ended; nothing was added"
                )
            found.append(step)
        return found


def _name_of(node: Node, first: Any) -> str:
    """Return a step's name; without one, the kind of its first job.

    Raises:
        UsageError: it is too long; nothing was stored.
    """
    step = node.step
    if step.name:
        return step.name
    kind = first.packed.kind if isinstance(first, Call) else f"step {step.number}"
    return checked_text(node.origin.prefix + kind, "name") or kind


def _problem(call: Any, flow: object) -> str:
    """Return why a call that was made for a flow cannot be in one; "": it can."""
    if not isinstance(call, Call):
        return f"expected a call, such as handler.call(...), got {type(call).__name__}"
    job = call.packed
    if job.key is not None or job.unique is not None:
        return (
            f"key= and unique= of {job.kind} do not go with flows: the flow has "
            "a key, jobs.flow(name, key=...)"
        )
    if job.run_at_ms is not None:
        return (
            f"run_at= of {job.kind} does not go with flows: nobody knows when the "
            "step is reached; run_in= counts from then"
        )
    if call.connection is not None:
        return (
            f"connection= of {job.kind} does not go with flows, which are stored "
            "as a whole: flow.enqueue(connection=...)"
        )
    if any(value.flow is not flow for value in call.needs):
        return f"{job.kind} is called with the value of a step of another flow"
    return ""


E = TypeVar("E", bound=StrEnum)


def _one_of(value: str, choices: type[E], what: str) -> E:
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(repr(str(one)) for one in choices)
        raise UsageError(f"{what}: expected one of {known}, got {value!r}") from None
