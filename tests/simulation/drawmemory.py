"""Draws hosts that run short of memory into a few scenarios."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from simulation.plan import Fate, Fault, JobPlan, Plan

SHARE = 0.007
"""Of the scenarios."""
FATES = {"ok": 12, "grow": 12, "fail": 2, "crash": 1, "leak": 1, "complete": 2}
WORKS_S = (0.3, 1.0, 3.0, 8.0)
LASTS_S = (0.5, 3.0, 9.0)
LEAVES = (0.2, 0.45, 0.6, 0.95, 1.5)
"""What other programs leave, as a share of the reserve."""
FAULTS = ("drain", "kill_supervisor", "kill_child", "stop_supervisor", "reload", "cut")


def with_little_memory(plan: Plan) -> Plan:
    """Let a few scenarios have hosts that run short, and jobs that grow there."""
    r = Random(f"{plan.seed} memory")
    if r.random() >= SHARE or plan.schedules or plan.quotas or plan.flows:
        return plan
    if any(fault.what == "upgrade" for fault in plan.faults):
        return plan
    end_s, wide = plan.quiet_at_s, r.choice((2, 3, 4, 6))
    bursts_s = [r.random() * end_s / 2 for _ in range(3)]
    jobs = [_job(r, plan, r.choice(bursts_s)) for _ in range(r.choice((6, 12, 20)))]
    falls = [
        Fault(
            at_s=r.choice(bursts_s) + r.random() * 3.0,
            what="memory_falls",
            where=r.randrange(60),
            seconds=r.choice(LASTS_S),
            share=r.choice(LEAVES),
        )
        for _ in range(r.choice((1, 2, 4)))
    ]
    others = [
        Fault(
            at_s=r.random() * end_s,
            what=r.choice(FAULTS),
            where=r.randrange(60),
            seconds=r.random() * 9.0,
        )
        for _ in range(r.choice((0, 0, 1, 2)))
    ]
    return replace(
        plan,
        pools=tuple(
            (n, max(low, wide), max(high, wide)) for n, low, high in plan.pools
        ),
        jobs=tuple(jobs),
        faults=(*falls, *others),
        coarse=True,
        little_memory=True,
    )


def _job(r: Random, plan: Plan, at_s: float) -> JobPlan:
    pool = r.choice(plan.pools)[0]
    (name,) = r.choices(list(FATES), list(FATES.values()))
    return JobPlan(
        at_s=at_s + r.random() * 0.2,
        kind=f"{pool}.{r.choice(('work', 'work', 'work', 'once', 'beat'))}",
        pool=pool,
        fates=(Fate(name, r.choice(WORKS_S)), Fate("ok", 0.3)),  # type: ignore[arg-type]
    )
