"""Draws schedules into a few scenarios."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from jobpool.core.rules.schedules.policy import Missed, Overlap, Policy
from jobpool.core.rules.schedules.rule import Rule
from simulation.plan import Fate, Fault, Plan, SchedulePlan

SHARE = 0.02
"""Of the scenarios."""
JUMP_SHARE = 0.25
"""Of those: a clock jumps ahead, and back."""
YEAR_S = 366 * 86_400.0
FATES = {"ok": 14, "fail": 3, "crash": 1, "hang": 1, "kill_parent": 1}
WORKS_S = (0.01, 0.3, 2.0, 5.0)
FAULTS = ("pause_schedule", "pause_schedule", "remove_schedule")


def with_schedules(plan: Plan) -> Plan:
    """Let a few scenarios have schedules, changes of them, and a deploy."""
    r = Random(f"{plan.seed} schedules")
    if r.random() >= SHARE or any(fault.what == "upgrade" for fault in plan.faults):
        return plan
    end_s = plan.quiet_at_s
    names = [f"s{number}" for number in range(r.choice((2, 3, 4)))]
    schedules = tuple(_schedule(r, plan, name) for name in names)
    faults = [
        Fault(
            at_s=r.random() * end_s,
            what=r.choice(FAULTS),
            where=r.randrange(60),
            seconds=r.random() * end_s / 2,
        )
        for _ in range(r.choice((0, 1, 2, 3)))
    ]
    if any(one.versions for one in schedules):
        at_s = r.random() * end_s / 2
        faults.append(Fault(at_s=at_s, what="deploy"))
        faults += [
            Fault(at_s=r.uniform(at_s, end_s), what="drain", where=r.randrange(60))
            for _ in range(r.choice((0, 1, 2)))
        ]
    if r.random() < JUMP_SHARE:
        # On one host no lease ends by time. A retry of that year would come in a year.
        plan = replace(
            plan, shared=False, hosts=1, ttl_s=300.0, jobs=(), faults=(), hooks=False
        )
        schedules = tuple(
            replace(one, fates=(Fate("ok", 0.3), Fate("ok", 2.0))) for one in schedules
        )
        at_s = r.random() * end_s / 3
        faults += [
            Fault(at_s=at_s, what="jump_wall", seconds=YEAR_S),
            Fault(at_s=at_s + r.uniform(0.1, 10.0), what="jump_wall", seconds=-YEAR_S),
        ]
    return replace(plan, schedules=schedules, faults=(*plan.faults, *faults))


def _schedule(r: Random, plan: Plan, name: str) -> SchedulePlan:
    policy = Policy(
        missed=r.choice(list(Missed)),
        catchup_max=5,
        overlap=r.choice(list(Overlap)),
    )
    every_ms = r.choice((1000, 2000, 3000, 7000))
    rule = Rule(every_ms=max(every_ms, 3000 * policy.keeps_retries))
    if r.random() < 0.2:
        rule = Rule(cron="* * * * *")
    elif r.random() < 0.2:
        rule, policy = Rule(every_ms=every_ms, from_end=True), Policy()
    versions = r.choice(((), (), (), ("1",), ("2",), ("1", "2")))
    return SchedulePlan(
        name=name,
        at_s=r.random() * plan.quiet_at_s / 2,
        kind=f"{plan.pools[0][0]}.work",
        rule=rule,
        policy=policy,
        versions=versions,
        fates=tuple(_fate(r) for _ in range(5)),
    )


def _fate(r: Random) -> Fate:
    (name,) = r.choices(list(FATES), list(FATES.values()))
    return Fate(name, r.choice(WORKS_S))  # type: ignore[arg-type]
