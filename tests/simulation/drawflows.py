"""Draws flows into a few scenarios."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from jobpool.core.jobs.flow import EXTERNAL, Failure, Hook, NewFlow, NewStep, When
from simulation.plan import Fate, Fault, FlowPlan, JobPlan, Plan

SHARE = 0.012
"""Of the scenarios."""
FATES = {"ok": 30, "fail": 4, "give_up": 3, "crash": 2, "complete": 3, "kill_parent": 1}
WORKS_S = (0.01, 0.3, 2.0)
FAULTS = ("cancel_flow", "pause_flow", "pause_flow", "approve", "approve", "approve")
RETRIES_MAX = 8


def with_flows(plan: Plan) -> Plan:
    """Let a few scenarios have flows, beside their jobs, and people who change them."""
    r = Random(f"{plan.seed} flows")
    if r.random() >= SHARE or plan.schedules or plan.hooks or plan.quotas:
        return plan
    if any(fault.what == "upgrade" for fault in plan.faults):
        return plan
    end_s = plan.quiet_at_s
    faults = [
        *plan.faults,
        *_retries(Random(f"{plan.seed} retries"), end_s),
    ]
    faults += [
        Fault(
            at_s=r.random() * end_s,
            what=r.choice(FAULTS),
            where=r.randrange(60),
            seconds=r.random() * 20.0,
        )
        for _ in range(r.randrange(8))
    ]
    flows = tuple(_flow(r, plan, f"{n}") for n in range(r.choice((2, 4, 6))))
    return replace(plan, faults=tuple(faults), flows=flows)


def _retries(r: Random, end_s: float) -> list[Fault]:
    """Draw when somebody retries what has failed of flows: seldom early."""
    return [
        Fault(
            at_s=r.uniform(0.2, 1.0) * end_s, what="retry_flow", where=r.randrange(60)
        )
        for _ in range(r.randrange(RETRIES_MAX))
    ]


def _flow(r: Random, plan: Plan, key: str) -> FlowPlan:
    count = r.choice((1, 2, 3, 4, 5, 6))
    steps = [_step(r, number) for number in range(count)]
    hooks = r.sample(list(Hook), r.randrange(4))
    steps += [
        NewStep(number=count + place, name=hook.value, hook=hook)
        for place, hook in enumerate(hooks)
    ]
    flow = NewFlow(
        name="flow",
        key=r.choice((None, key)),
        failure=r.choice(list(Failure)),
        steps=tuple(steps),
    )
    members = tuple(
        (one.number, _member(r, plan, one))
        for one in steps
        for _ in range(1 if one.external else r.choice((1, 1, 1, 2, 3, 0)))
    )
    at_s = r.random() * plan.quiet_at_s / 2
    return FlowPlan(at_s=at_s, flow=flow, members=members)


def _step(r: Random, number: int) -> NewStep:
    before = r.sample(range(number), min(number, r.choice((1, 1, 1, 2, 3, 0))))
    when = (When.SUCCEEDED,) * 4 + (When.FAILED, When.FINISHED)
    is_external = r.random() < 0.1
    return NewStep(
        number=number,
        name=f"s{number}",
        after=tuple((one, r.choice(when)) for one in sorted(before)),
        external=is_external,
        timeout_ms=r.choice((3000, 30_000)) if is_external else None,
    )


def _member(r: Random, plan: Plan, step: NewStep) -> JobPlan:
    pool = r.choice(plan.pools)[0]
    if step.external:
        kind = f"{EXTERNAL}{step.name}"
        return JobPlan(at_s=0.0, kind=kind, pool=pool, fates=(Fate("ok", 0.0),))
    (name,) = r.choices(list(FATES), list(FATES.values()))
    return JobPlan(
        at_s=0.0,
        kind=f"{pool}.{r.choice(('work', 'work', 'once'))}",
        pool=pool,
        fates=(Fate(name, r.choice(WORKS_S)), Fate("ok", 0.1)),  # type: ignore[arg-type]
        delay_ms=r.choice((0, 0, 0, 0, 500)),
        expires_in_ms=r.choice((None,) * 8 + (2000,)),
        max_attempts=r.choice((1, 2, 3)),
    )
