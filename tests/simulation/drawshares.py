"""Draws fair and aged pools into a few scenarios."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from jobpool.core.rules.quotas.definition import Need, Quota, Tenant
from jobpool.core.rules.quotas.shares import PoolRule
from simulation.plan import Fate, Fault, JobPlan, Plan, QuotasPlan

SHARE = 0.015
"""Of the scenarios."""
CALM_SHARE = 0.5
"""Of those: nothing goes wrong but what operators do."""
COMES = {"a": (12, 30, 40), "b": (6, 16), "c": (1, 6), "": (1, 3)}
"""Jobs of each tenant; the first one floods."""
FATES = {"ok": 20, "fail": 2, "crash": 1, "hang": 1}
WORKS_S = (0.05, 0.3, 1.0)
CHANGES = ("deploy_quotas", "deploy_quotas", "pause_quota", "set_tenant", "jump_store")
FAULTS = ("drain", "kill_supervisor", "reload", "kill_child", "mute")
RULES = (
    {"fair": "tenant"},
    {"fair": "tenant"},
    {"fair": "kind"},
    {"aging_s": 2.0},
    {"aging_s": 0.5},
    {"fair": "tenant", "aging_s": 2.0},
)


def with_shares(plan: Plan) -> Plan:
    """Let a few scenarios have fair or aged pools, and many more jobs."""
    r = Random(f"{plan.seed} shares")
    if r.random() >= SHARE or plan.schedules or plan.hooks or plan.quotas:
        return plan
    if any(fault.what == "upgrade" for fault in plan.faults):
        return plan
    end_s = plan.quiet_at_s
    first = QuotasPlan(
        quotas=(Quota(name="cap", concurrency=1, per=r.choice((None, "tenant"))),),
        needs={f"{plan.pools[0][0]}.once": (Need("cap"),)},
        caps={},
        tenants=tuple(
            Tenant(name=name, weight=r.choice((1.0, 1.0, 2.0, 4.0))) for name in "ab"
        ),
        pools=tuple(_rule(r, name) for name, _, _ in plan.pools),
    )
    second = replace(first, pools=tuple(_rule(r, name) for name, _, _ in plan.pools))
    jobs = []
    for tenant, comes in COMES.items():
        bursts_s = 0.1, r.choice((0.1, 1.0, 3.0, r.random() * 12))
        jobs += [
            _job(r, plan, tenant, r.choice(bursts_s)) for _ in range(r.choice(comes))
        ]
    wide = r.choice((0, 0, 5))
    is_calm = r.random() < CALM_SHARE
    names = [r.choice(CHANGES) for _ in range(r.choice((0, 1, 2)))]
    names += [] if is_calm else [r.choice(FAULTS) for _ in range(r.choice((1, 2)))]
    if "deploy_quotas" in names:
        names += ["drain", "reload"]
    faults = [
        Fault(
            at_s=r.random() * end_s * 0.7,
            what=name,
            where=r.randrange(60),
            seconds=r.choice((1.0, 5.0, -5.0)) if "jump" in name else r.random() * 9,
        )
        for name in names
    ]
    return replace(
        plan,
        pools=tuple(
            (n, max(low, wide), max(high, wide)) for n, low, high in plan.pools
        ),
        coarse=True,
        budget_bytes=None,
        jobs=tuple(jobs),
        faults=tuple(faults),
        quotas=(first, second),
    )


def _rule(r: Random, name: str) -> PoolRule:
    return PoolRule(name=name, **r.choice(RULES))


def _job(r: Random, plan: Plan, tenant: str, at_s: float) -> JobPlan:
    pool = r.choice(plan.pools)[0]
    (name,) = r.choices(list(FATES), list(FATES.values()))
    return JobPlan(
        at_s=at_s,
        kind=f"{pool}.{r.choice(('work', 'work', 'beat', 'once'))}",
        pool=pool,
        fates=(Fate(name, r.choice(WORKS_S)), Fate("ok", 0.1)),  # type: ignore[arg-type]
        priority=r.choice((0, 0, 0, 0, 0, 5)),
        tenant=tenant or None,
        stamped=r.random() < 0.5,
    )
