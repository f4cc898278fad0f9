"""Flows of a chaos run: drawn at random, enqueued by producers, and meddled with.

A flow has a name of its own, and so has each of its members: ``NAME.STEP.PLACE``, which
is the call among its arguments. What a member adds while it runs is called after it.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from jobpool.core.jobs.flow import EXTERNAL, Failure, Hook, NewFlow, NewStep, When
from jobpool.errors import OutcomeUnknown, StoreError, UsageError

SHARE = 0.06
"""Of what a producer enqueues: one has about as many members as all else together."""
STEPS = (1, 2, 3, 4, 5)
MANY = (0, 2, 3)
SHARE_OF_KIND = {
    "steady": 6, "quick": 6, "waiting": 4, "flaky": 3, "once": 1, "capped": 1,
    "segfault": 1, "leave": 0.5,
}  # fmt: skip
GATHERS, SPREADS = "gather", "spread"
EXTERNAL_STEPS, GATHERING, SPREADING = 0.1, 0.6, 0.15
LASTS_MS = (5, 30, 100, 300)
TIMEOUT_S = 3
KEYED, CANCELED, PAUSED, APPROVED = 0.6, 0.08, 0.15, 0.8
PAUSES_S = (0.0, 0.2, 1.0)
APPROVAL = 7
"""What is given with each approval."""


class Drawn(NamedTuple):
    """A flow as it is to be stored."""

    declared: NewFlow
    kinds: tuple[tuple[str, ...], ...]
    """Of each step's members; of an external step's, the one that it has."""
    added: dict[str, int]
    """How many jobs a member adds, by its call."""
    reads: dict[int, tuple[int, ...]]
    """The steps whose results the one member of a step gets as arguments."""

    def calls(self):
        """Yield each member's step and call, in order."""
        for number, kinds in enumerate(self.kinds):
            for place in range(len(kinds)):
                yield number, call_of(self.declared.name, number, place)


class Act(NamedTuple):
    """What somebody did, or tried to do, to a flow."""

    at_ns: int
    flow: str
    what: str
    """``cancel`` or ``approve``."""
    is_known: bool
    """It was done; False: it may have been."""
    call: str = ""
    """Of the member that was approved."""


class Plan(NamedTuple):
    """What is to be done to a flow."""

    after_s: float
    act: Callable[[], bool]
    """Returns whether it has to be tried again."""
    is_due: bool = False
    """The run cannot end without it."""


def call_of(flow, number, place):
    """Return what a member is called."""
    return f"{flow}.{number}.{place}"


def added_calls(call, count):
    """Return what those are called that a member adds."""
    return [f"{call}+{n}" for n in range(count)]


def draw(rng, name, tenants):
    """Draw a flow."""
    count = rng.choice(STEPS)
    steps, kinds, added, reads = [], [], {}, {}
    for number in range(count):
        before = sorted(
            rng.sample(range(number), min(number, rng.choice((0, 1, 1, 2))))
        )
        when = rng.choice((When.SUCCEEDED,) * 4 + (When.FAILED, When.FINISHED))
        is_external = rng.random() < EXTERNAL_STEPS
        timeout_ms = TIMEOUT_S * 1000 if is_external else None
        given = {"external": is_external, "timeout_ms": timeout_ms}
        edges = tuple((one, when) for one in before)
        steps.append(NewStep(number=number, name=f"s{number}", after=edges, **given))
        own = (f"{EXTERNAL}s{number}",) if is_external else _kinds(rng)
        sources = tuple(one for one in before if not steps[one].external)
        may_read = sources and not is_external and when is When.SUCCEEDED
        if may_read and rng.random() < GATHERING:
            own, reads[number] = (GATHERS,), sources
        if own == (SPREADS,):
            added[call_of(name, number, 0)] = rng.choice((1, 2))
        kinds.append(own)
    for hook in rng.sample(list(Hook), rng.choice((0, 0, 1, 2, 3))):
        steps.append(NewStep(number=len(steps), name=hook.value, hook=hook))
        kinds.append((rng.choice(("steady", "quick", "flaky")),))
    declared = NewFlow(
        name=name,
        key=name if rng.random() < KEYED else None,
        tenant=rng.choice(tenants),
        failure=rng.choice(list(Failure)),
        steps=tuple(steps),
    )
    return Drawn(declared, tuple(kinds), added, reads)


def _kinds(rng):
    if rng.random() < SPREADING:
        return (SPREADS,)
    count = rng.choice((1, 1, *MANY))
    return tuple(
        rng.choices(list(SHARE_OF_KIND), list(SHARE_OF_KIND.values()), k=count)
    )


class FlowProducer:
    """Stores flows as they were drawn, and does later what people do to them.

    Args:
        rng: decides everything.
        handlers: of the application, by kind.
        jobs: its JobPool.
    """

    def __init__(self, rng, handlers, jobs):
        self._rng, self._handlers, self._jobs = rng, handlers, jobs
        self.drawn: list[Drawn] = []
        self.acts: list[Act] = []

    def build(self, drawn):
        """Return what the client builds of it, not stored yet."""
        one = drawn.declared
        given = {"key": one.key, "tenant": one.tenant, "failure": one.failure.value}
        flow = self._jobs.flow(one.name, **given)
        built: list[Any] = []
        for number, (step, kinds) in enumerate(
            zip(one.steps, drawn.kinds, strict=True)
        ):
            calls = [
                self._call(drawn, number, place, kind, built)
                for place, kind in enumerate(kinds)
                if not step.external
            ]
            if step.hook is not None:
                name = f"on_{step.hook.value}"
                built.append(getattr(flow, name)(*calls, name=step.name))
                continue
            given = {"after": [built[before] for before, _ in step.after]}
            if step.after:
                given["when"] = step.after[0][1].value
            if step.external:
                given["timeout"] = step.timeout_ms / 1000
                built.append(flow.wait_for(step.name, **given))
            elif len(calls) == 1:
                built.append(flow.add(*calls, name=step.name, **given))
            else:
                built.append(flow.add_many(calls, name=step.name, **given))
        return flow

    def _call(self, drawn, number, place, kind, built):
        name = call_of(drawn.declared.name, number, place)
        lasts_ms = self._rng.choice(LASTS_MS)
        more = ()
        if kind == GATHERS:
            more = ([built[one].value for one in drawn.reads[number]],)
        elif kind == SPREADS:
            more = (drawn.added[name],)
        return self._handlers[kind].call(name, lasts_ms, *more)

    def plans(self, drawn, run):
        """Yield what is to be done to a flow that is stored, as `Plan`."""
        name = drawn.declared.name
        for step in drawn.declared.steps:
            if step.external and self._rng.random() < APPROVED:
                approve = partial(
                    self._approve, run, step, call_of(name, step.number, 0)
                )
                yield Plan(self._rng.random(), approve)
        if self._rng.random() < CANCELED:
            yield Plan(self._rng.random(), partial(self._cancel, run, name))
        if self._rng.random() < PAUSED:
            after_s = self._rng.random()
            yield Plan(after_s, partial(self._pause, run))
            until_s = after_s + self._rng.choice(PAUSES_S)
            yield Plan(until_s, partial(self._resume, run), is_due=True)

    def _approve(self, run, step, call):
        flow, _, _ = call.partition(".")
        try:
            done = self._jobs.approve(run.job(step.name).id, APPROVAL)
        except UsageError:
            return True  # its turn has not come
        except OutcomeUnknown:
            done = None
        except StoreError:
            return True
        if done is not False:
            self._note(flow, "approve", is_known=bool(done), call=call)
        return False

    def _cancel(self, run, name):
        try:
            done = run.cancel()
        except OutcomeUnknown:
            done = None
        except StoreError:
            return True
        if done is not False:
            self._note(name, "cancel", is_known=bool(done))
        return False

    def _pause(self, run):
        with suppress(StoreError):
            run.pause()
        return False

    def _resume(self, run):
        try:
            run.resume()
        except StoreError:
            return True
        return False

    def _note(self, flow, what, *, is_known, call=""):
        self.acts.append(Act(time.time_ns(), flow, what, is_known, call))
