"""What is known of a chaos run's flows: as drawn, as stored, and what was done to them.

Theory of operation. A flow has a name that its producer alone has given, and so has
each member: they join what was drawn with what the database holds. Which member is of
which step is taken from what was drawn, never from the rows that are being judged.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.flows import APPROVAL, Act, Drawn, added_calls, call_of
from jobpool.core.jobs.flow import EXTERNAL
from support.store import history as h
from support.store.invariants import Violation

RULE = "I28"
SUCCEEDED = "succeeded"


class FlowRow(NamedTuple):
    """A row of `Place.read_flows`."""

    id: int
    name: str
    state: str
    ending: str | None
    is_over: bool


class StepRow(NamedTuple):
    """A row of `Place.read_steps`."""

    id: int
    flow: int
    number: int
    state: str
    failed: bool


@dataclass
class Flows:
    """All flows of a run."""

    drawn: dict[str, Drawn] = field(default_factory=dict)
    """By name."""
    acts: list[Act] = field(default_factory=list)
    rows: list[FlowRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    ids: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Jobs by their calls."""

    def __post_init__(self):
        self.row_of = {row.id: row for row in self.rows}
        self.step_of = {step.id: step for step in self.steps}
        self.known = {
            row.id: self.drawn[row.name] for row in self.rows if row.name in self.drawn
        }

    def call_of(self, job):
        """Return a job's name if it is that of an external step; None: it is not."""
        if not job.kind.startswith(EXTERNAL):
            return None
        step = self.step_of[job.step]
        return call_of(self.row_of[step.flow].name, step.number, 0)

    def learn(self, jobs):
        """Note the jobs of each call.

        Args:
            jobs: pairs of a job and its call.
        """
        for job, call in jobs:
            self.ids[call].append(job)

    def of_adders(self):
        """Yield each member that adds others, and what those are called."""
        for drawn in self.drawn.values():
            for call, count in drawn.added.items():
                yield call, added_calls(call, count)

    def records(self):
        """Yield what history is to know before all else, and the cancellations."""
        for flow, drawn in self.known.items():
            members = tuple(
                tuple(sorted(self._members(drawn, number)))
                for number in range(len(drawn.kinds))
            )
            yield h.FlowStored(
                at_s=0.0, flow=flow, declared=drawn.declared, members=members
            )
        flows = {row.name: row for row in self.rows}
        for act in self.acts:
            row = flows.get(act.flow)
            is_done = act.is_known or (row is not None and row.ending == "cancel")
            if act.what == "cancel" and row is not None and is_done:
                yield h.FlowCanceled(at_s=act.at_ns / 1e9, flow=row.id)

    def _members(self, drawn, number):
        for place in range(len(drawn.kinds[number])):
            call = call_of(drawn.declared.name, number, place)
            for one in (call, *added_calls(call, drawn.added.get(call, 0))):
                yield from self.ids.get(one, ())

    def finals(self):
        """Yield each flow as it stands at the end."""
        steps = defaultdict(list)
        for step in sorted(self.steps, key=lambda step: step.number):
            steps[step.flow].append((step.state, bool(step.failed)))
        for flow in self.known:
            row = self.row_of[flow]
            yield h.FinalFlow(
                flow=flow,
                state=row.state,
                ending=row.ending,
                is_over=bool(row.is_over),
                steps=tuple(steps[flow]),
            )


def flows_are_whole(accounts):
    """I1, I2: a flow is there with each of its members, or not at all, and once."""
    flows, rows = accounts.flows, defaultdict(list)
    for row in flows.rows:
        rows[row.name].append(row.id)
        if row.name not in flows.drawn:
            yield Violation("I2", 0, f"nobody has asked for flow {row.name!r}")
    for name, drawn in flows.drawn.items():
        if len(rows[name]) > 1:
            yield Violation("I2", 0, f"flow {name} is there as {rows[name]}")
        for number, call in drawn.calls():
            jobs = flows.ids.get(call, ())
            if rows[name] and not jobs:
                yield Violation("I1", 0, f"flow {name} is there, and not {call}")
            for job in jobs:
                yield from _misplaced(accounts, job, name, number)


def _misplaced(accounts, job, name, number):
    step = accounts.flows.step_of.get(accounts.job_of[job].step)
    where = step and (accounts.flows.row_of[step.flow].name, step.number)
    if where != (name, number):
        yield Violation("I2", job, f"of step {number} of {name}, it is at {where}")


def nobody_else_acts(accounts):
    """I28: what was canceled or approved is what somebody has asked for."""
    flows = accounts.flows
    asked = {act.flow for act in flows.acts if act.what == "cancel"}
    for row in flows.rows:
        if row.ending == "cancel" and row.name not in asked:
            yield Violation(RULE, 0, f"flow {row.name} was canceled by nobody")
    approved = {act.call: act.is_known for act in flows.acts if act.what == "approve"}
    for job in accounts.jobs:
        if (call := flows.call_of(job)) is None:
            continue
        if job.state == SUCCEEDED:
            if call not in approved or json.loads(job.result or b"null") != APPROVAL:
                yield Violation(RULE, job.job, f"it has {job.result}; nobody approved")
        elif approved.get(call):
            yield Violation(RULE, job.job, f"it was approved, and is {job.state}")


def added_come_with_success(accounts):
    """I28: what a member adds is there once it has succeeded, and not before."""
    for adder, calls in accounts.flows.of_adders():
        there = [len(accounts.flows.ids.get(call, ())) for call in calls]
        for job in accounts.flows.ids.get(adder, ()):
            state = accounts.job_of[job].state
            if there != [int(state == SUCCEEDED)] * len(calls):
                text = f"it is {state}, and what it adds is there {there} times"
                yield Violation(RULE, job, text)


def results_arrive(accounts):
    """I28: a member gets what the steps before it have returned, in their order."""
    flows = accounts.flows
    for name, drawn in flows.drawn.items():
        for number, before in drawn.reads.items():
            for job in flows.ids.get(call_of(name, number, 0), ()):
                yield from _wrong_arguments(accounts, job, drawn, before)


def _wrong_arguments(accounts, job, drawn, before):
    calls = [
        call_of(drawn.declared.name, one, place)
        for one in before
        for place in range(len(drawn.kinds[one]))
    ]
    jobs = [one for call in calls for one in accounts.flows.ids.get(call, ())]
    right = [json.loads(accounts.job_of[one].result or b"null") for one in jobs]
    for one in accounts.attempts.values():
        # An attempt that was killed may not have come to the end of them.
        seen = right[: len(one.given)] if one.action != "stop" else right
        if one.job == job and one.given != seen:
            text = f"it was given {one.given}, and {right} was returned"
            yield Violation(RULE, job, text, one.token)


RULES = (flows_are_whole, nobody_else_acts, added_come_with_success, results_arrive)
