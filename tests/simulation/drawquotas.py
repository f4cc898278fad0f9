"""Draws quotas into a few scenarios."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Need, Quota, Tenant
from jobpool.core.rules.quotas.rate import Rate
from simulation.plan import Fate, Fault, JobPlan, Plan, QuotasPlan

SHARE = 0.025
"""Of the scenarios."""
CALM_SHARE = 0.5
"""Of those: nothing goes wrong but what quotas and operators do."""
SLOW_SHARE = 0.3
"""Of those: leases arrive so late that what a rate counts goes back unbegun."""
BUDGET_SHARE = 0.4
MANY = (8, 14, 20)
"""Jobs, beside those that the scenario has."""
FATES = {
    "ok": 12,
    "permit": 6,
    "permit_keep": 3,
    "permit_leave": 1,
    "throttled": 1,
    "told_to_wait": 1,
    "complete_early": 2,
}
BAD_FATES = {"permit_die": 2, "fail": 2, "crash": 2, "hang": 1, "kill_parent": 1}
WORKS_S = (0.01, 0.1, 0.3, 1.0)
HOLDS_S = (0.05, 0.3, 1.0)
CHANGES = (
    *("pause_quota", "pause_quota", "set_quota", "set_quota", "set_tenant"),
    *("reset_quota", "deploy_quotas", "deploy_quotas"),
    *("jump_store", "jump_wall", "jump_store", "jump_wall"),
)
JUMPS_S = (-60.0, -5.0, 5.0, 60.0)
VALUES = ("a", "b", "c")
BREAKER = BreakerRule(window_s=10.0, requests=3, pause_s=2.0)
"""Of what handlers ask for; their service is down every other few seconds."""


def with_quotas(plan: Plan) -> Plan:
    """Let a few scenarios have quotas, changes of them, and many more jobs."""
    r = Random(f"{plan.seed} quotas")
    if r.random() >= SHARE or plan.schedules or plan.hooks:
        return plan
    if any(fault.what == "upgrade" for fault in plan.faults):
        return plan
    is_calm = r.random() < CALM_SHARE
    kinds = [f"{name}.{kind}" for name, _, _ in plan.pools for kind in ("work", "once")]
    first = _version(r, kinds)
    second = replace(first, quotas=tuple(_changed(r, one) for one in first.quotas))
    if r.random() < 0.5:
        second = replace(second, needs=_needs(r, kinds, second.quotas))
    first, second = (_with_budget(plan.seed, one) for one in (first, second))
    jobs = tuple(
        _job(r, plan, number, is_calm=is_calm) for number in range(r.choice(MANY))
    )
    end_s = plan.quiet_at_s
    faults = [_change(r, end_s) for _ in range(r.choice((1, 2, 3, 5)))]
    if any(fault.what == "deploy_quotas" for fault in faults):
        faults += [
            Fault(at_s=r.random() * end_s, what=r.choice(("drain", "reload")), where=n)
            for n in range(3)
        ]
    if r.random() < SLOW_SHARE:
        at_s, share = r.random() * end_s / 2, r.choice((0.02, 0.05, 0.2))
        slow = Fault(at_s=at_s, what="slow", seconds=end_s / 3, share=share)
        faults.append(slow)
    if is_calm:
        plan = replace(plan, jobs=(), faults=())
    supervisors = plan.supervisors
    if plan.shared:
        supervisors = r.choice((plan.supervisors, 3, 5))
    return replace(
        plan,
        coarse=True,
        budget_bytes=None,
        supervisors=supervisors,
        hosts=max(plan.hosts, supervisors // 2) if plan.shared else 1,
        jobs=(*(_quoted(r, job) for job in plan.jobs), *jobs),
        faults=(*plan.faults, *faults),
        quotas=(first, second),
    )


def _version(r: Random, kinds: list[str]) -> QuotasPlan:
    per = (None, None, "tenant", "args.v")
    burst = r.choice((1, 1, 2, 5))
    quotas = (
        Quota(name="cap", concurrency=r.choice((1, 2, 3)), per=r.choice(per)),
        Quota(
            name="rate",
            rate=Rate(r.choice((1.0, 3.0, 10.0)), 1.0),
            burst=burst,
            concurrency=r.choice((None, None, 2)),
            per=r.choice(per),
        ),
        Quota(
            name="asked",
            concurrency=r.choice((None, 1, 2)),
            rate=r.choice((None, Rate(2.0, 1.0), Rate(10.0, 1.0))),
            burst=None,
            per=r.choice(per),
            wait_s=r.choice((0.5, 2.0)),
            breaker=BREAKER,
        ),
        Quota(name="disk", concurrency=r.choice((1, 2)), host_only=True),
    )
    quotas = tuple(
        replace(one, burst=r.choice((1, 2, 5))) if one.rate and not one.burst else one
        for one in quotas
    )
    tenants: tuple[Tenant, ...] = ()
    if r.random() < 0.4:
        tenants = (
            Tenant(name="*", concurrency=r.choice((1, 2))),
            Tenant(name="a", rate=Rate(4.0, 1.0), burst=2),
        )
    return QuotasPlan(
        quotas=quotas,
        needs=_needs(r, kinds, quotas),
        caps={r.choice(kinds): r.choice((1, 2))} if r.random() < 0.5 else {},
        tenants=tenants,
    )


def _with_budget(seed: object, version: QuotasPlan) -> QuotasPlan:
    """Let some fleets have a retry budget."""
    r = Random(f"{seed} budget")
    if r.random() >= BUDGET_SHARE:
        return version
    floor = Rate(r.choice((12.0, 60.0)), 60.0)
    return replace(version, retry_budget=RetryBudget(r.choice((0.0, 0.2)), floor))


def _needs(
    r: Random, kinds: list[str], quotas: tuple[Quota, ...]
) -> dict[str, tuple[Need, ...]]:
    """Draw what kinds need; a cost is never over the cap or the burst."""
    needs = {}
    for kind in kinds:
        found = []
        for one in quotas:
            if one.name != "asked" and r.random() < (0.2 if one.host_only else 0.5):
                most = min(one.concurrency or 9, one.burst or 9)
                found.append(Need(one.name, min(most, r.choice((1, 1, 1, 2)))))
        if found:
            needs[kind] = tuple(found)
    return needs


def _changed(r: Random, one: Quota) -> Quota:
    """Change a number of a quota, or what it counts by."""
    if one.host_only or r.random() < 0.4:
        return one
    if r.random() < 0.3:
        return replace(one, per=r.choice((None, "tenant", "args.v")))
    if one.rate is not None:
        return replace(one, rate=Rate(r.choice((2.0, 5.0)), 1.0), burst=3)
    return replace(one, concurrency=r.choice((2, 4)))


def _change(r: Random, end_s: float) -> Fault:
    what = r.choice(CHANGES)
    seconds = r.choice(JUMPS_S)
    if not what.startswith("jump"):
        seconds = r.random() * end_s / 3
    return Fault(
        at_s=r.random() * end_s, what=what, where=r.randrange(60), seconds=seconds
    )


def _job(r: Random, plan: Plan, number: int, *, is_calm: bool) -> JobPlan:
    pool = r.choice(plan.pools)[0]
    at_s = r.choice((0.1, 0.4, r.random())) * plan.quiet_at_s * 0.6
    table = FATES if is_calm or r.random() < 0.7 else BAD_FATES
    (name,) = r.choices(list(table), list(table.values()))
    fate = Fate(name, r.choice(WORKS_S), again_in_s=r.choice(HOLDS_S))  # type: ignore[arg-type]
    if name in {"throttled", "told_to_wait"}:
        fate = replace(fate, again_in_s=r.choice((0.5, 3.0, 10.0)))
    job = JobPlan(
        at_s=at_s,
        kind=f"{pool}.{r.choice(('work', 'work', 'once', 'beat'))}",
        pool=pool,
        fates=(fate, Fate("ok", 0.1)),
        priority=r.choice((0, 0, 0, 5)),
    )
    return _quoted(r, job)


def _quoted(r: Random, job: JobPlan) -> JobPlan:
    """Give a job what quotas count by."""
    return replace(
        job,
        tenant=r.choice((None, *VALUES)),
        value=r.choice(VALUES),
        asks=r.choice(("asked", "asked", "cap", "rate")),
        stamped=r.random() < 0.7,
    )
