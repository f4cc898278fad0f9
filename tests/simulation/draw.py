"""Draws a scenario from a seed."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from simulation.drawflows import with_flows
from simulation.drawmemory import with_little_memory
from simulation.drawquotas import with_quotas
from simulation.drawschedules import with_schedules
from simulation.drawshares import with_shares
from simulation.killers import draw_killers
from simulation.plan import Fate, Fault, JobPlan, Plan
from simulation.versions import with_versions

# What attempts do, and how often.
FATES = {
    "ok": 30,
    "fail": 8,
    "give_up": 1,
    "later": 2,
    "crash": 6,
    "exit": 3,
    "hang": 4,
    "leak": 4,
    "stop": 1,
    "silent": 1,
    "lie": 1,
    "garbage": 1,
    "flood": 1,
    "twice": 1,
    "forge": 1,
    "daemon": 2,
    "daemon_crash": 2,
    "beat": 3,
    "ask": 2,
    "done_crash": 2,
    "kill_parent": 2,
    "kill_zygote": 1,
    "soft": 1,
    "complete": 4,
    "complete_not": 1,
    "complete_fail": 1,
    "complete_crash": 1,
    "complete_hang": 1,
}
FAULTS = {
    "kill_supervisor": 8,
    "kill_both": 3,
    "kill_at_step": 10,
    "stop_supervisor": 5,
    "stop_at_grant": 3,
    "stop_at_end": 5,
    "drain": 3,
    "quit": 2,
    "reload": 2,
    "kill_child": 6,
    "oom_kill": 2,
    "stop_child": 2,
    "stick_child": 1,
    "kill_zygote": 3,
    "cut": 8,
    "outage": 2,
    "lose": 4,
    "mute": 6,
    "slow": 3,
    "lock_job": 2,
    "reboot": 2,
    "sleep_host": 2,
    "sleep_at_completion": 5,
    "jump_wall": 2,
    "jump_store": 1,
    "cancel": 6,
    "revive": 3,
    "pause": 1,
    "fork_refused": 1,
    "fork_hangs": 1,
    "start_fails": 1,
    "load_fails": 1,
    "retire_hangs": 1,
}
SELDOM = frozenset({"start_fails"})
"""Faults of which some consequence comes in one life of a thousand."""
KILLERS_SHARE = 0.04
"""Of the scenarios: a job kills its host late, and nothing else goes wrong."""
SNOOZING_SHARE = 0.03
"""Of the jobs."""
BURST_AFTER = 4
"""With more jobs, every other one comes at the same time."""
QUICK_S = 0.0004
COMPLETE_S = (2.0, 12.0)
LIMITS_S = (3.0, 20.0)
"""Of silence, and of time (`application`)."""
AROUND_S = (-0.0002, 0.0008)
"""A last word that comes so near to a limit crosses with the kill."""
LASTING_S = {
    "stop_supervisor": 40.0,
    "stop_at_grant": 30.0,
    "stop_at_end": 30.0,
    "stick_child": 15.0,
    "cut": 90.0,
    "outage": 90.0,
    "sleep_host": 120.0,
    "sleep_at_completion": 20.0,
    "pause": 20.0,
    "kill_at_step": 40.0,
    "lock_job": 3.0,
}


def draw(seed: int) -> Plan:
    """Return the scenario of a seed."""
    _, plan = _drawn(seed)
    return plan


def is_usual(seed: int) -> bool:
    """Say whether a seed's scenario has nothing that is drawn into few."""
    before, plan = _drawn(seed)
    return before is plan and SELDOM.isdisjoint(fault.what for fault in plan.faults)


def _drawn(seed: int) -> tuple[Plan, Plan]:
    """Return the scenario of a seed, before and after what is drawn into few."""
    r = Random(seed)
    if r.random() < KILLERS_SHARE:
        plan = draw_killers(r, seed)
        return plan, plan
    plan = _common(r, seed)
    with_some = with_quotas(with_schedules(with_versions(plan)))
    return plan, with_little_memory(with_flows(with_shares(with_some)))


def _common(r: Random, seed: int) -> Plan:
    shared = r.random() < 0.5
    supervisors = r.choice((1, 1, 2, 2, 3)) if shared else r.choice((1, 1, 1, 2))
    pools = [("cpu", r.choice((1, 2, 3)), 0)]
    if r.random() < 0.4:
        pools.append(("io", r.choice((1, 2)), 0))
    ranges = r.random() < 0.15
    horizon_s = r.choice((5.0, 20.0, 60.0))
    quiet_at_s = horizon_s * 1.5 + 5.0
    is_fast = r.random() < 0.1
    coarse = r.random() < 0.9
    if not coarse:
        horizon_s = 5.0
        quiet_at_s = 10.0
    jobs = _jobs(r, [p[0] for p in pools], horizon_s, is_fast=is_fast)
    faults = _faults(r, horizon_s)
    if any(fault.what == "sleep_at_completion" for fault in faults):
        jobs = [_completing(job) for job in jobs]
    # By dice of its own: what else a seed stands for is as it was.
    jobs = _snoozing(Random(f"{seed} snoozes"), jobs)
    return Plan(
        seed=seed,
        shared=shared,
        supervisors=supervisors,
        hosts=max(1, r.choice((supervisors, supervisors, 1))) if shared else 1,
        pools=tuple((n, low, low + 2 * ranges) for n, low, _ in pools),
        recycle_jobs=r.choice((10_000, 10_000, 3, 1)),
        budget_bytes=r.choice((None, None, None, 2**30, 2**29)),
        ttl_s=r.choice((5.0, 10.0, 20.0, 60.0)) if shared else 300.0,
        coarse=coarse,
        jobs=tuple(jobs),
        faults=tuple(faults),
        quiet_at_s=quiet_at_s,
        hooks=r.random() < 0.3,
    )


def _jobs(
    r: Random, pools: list[str], horizon_s: float, *, is_fast: bool
) -> list[JobPlan]:
    many = r.choice((2, 4, 6, 8))
    burst_s = r.random() * horizon_s
    jobs = []
    for n in range(many):
        at_s = burst_s if n % 2 and many > BURST_AFTER else r.random() * horizon_s
        jobs.append(_job(r, r.choice(pools), at_s, f"{n}"))
    if is_fast:
        at_s = r.random() * horizon_s / 2
        jobs += [
            JobPlan(
                at_s=at_s + (n > 15),
                kind="cpu.work",
                pool="cpu",
                fates=(_quick(r) if n > 15 else Fate("ok", QUICK_S),),
            )
            for n in range(r.choice((24, 40)))
        ]
    return jobs


def _snoozing(r: Random, jobs: list[JobPlan]) -> list[JobPlan]:
    """Make a few attempts snooze first."""
    return [
        replace(job, snoozes=r.choice((1, 2, 4)))
        if r.random() < SNOOZING_SHARE
        else job
        for job in jobs
    ]


def _completing(job: JobPlan) -> JobPlan:
    """Make its first attempts complete it, slowly."""
    slow, slower = (Fate("complete", seconds) for seconds in COMPLETE_S)
    return replace(job, fates=(slow, slower, *job.fates))


def _job(r: Random, pool: str, at_s: float, name: str) -> JobPlan:
    kind = r.choice(("work", "work", "work", "once", "beat"))
    fates = tuple(_fate(r) for _ in range(r.choice((1, 1, 2, 3))))
    is_keyed = r.random() < 0.2
    return JobPlan(
        at_s=at_s,
        kind=f"{pool}.{kind}",
        pool=pool,
        fates=fates,
        delay_ms=r.choice((0, 0, 0, 0, 500, 30_000)),
        priority=r.choice((0, 0, 0, 5)),
        key=name if is_keyed else None,
        unique="one" if r.random() < 0.05 else None,
        expires_in_ms=r.choice((None,) * 12 + (2000,)),
        max_attempts=r.choice((None, None, None, None, 1, 2)),
    )


def _fate(r: Random) -> Fate:
    (name,) = r.choices(list(FATES), list(FATES.values()))
    seconds = r.choice((0.0004, 0.01, 0.3, 2.0, 12.0, 17.0))
    if r.random() < 0.02:
        seconds = r.choice(LIMITS_S) + r.uniform(*AROUND_S)
    return Fate(name, seconds)  # type: ignore[arg-type]


def _quick(r: Random) -> Fate:
    """Return the behaviour of a job sent ahead, or one that others queue behind."""
    if r.random() < 0.85:
        return Fate("ok", QUICK_S)
    return Fate(_fate(r).name, QUICK_S)


def _faults(r: Random, horizon_s: float) -> list[Fault]:
    found: list[Fault] = []
    for _ in range(r.choice((0, 1, 2, 3, 4, 6))):
        (what,) = r.choices(list(FAULTS), list(FAULTS.values()))
        at_s = r.random() * horizon_s
        found.append(one_fault(r, what, at_s, LASTING_S.get(what, 10.0)))
    if r.random() < 0.05:
        found += _swizzle(r, horizon_s)
    return found


def one_fault(r: Random, what: str, at_s: float, lasting_s: float) -> Fault:
    """Draw the details of a fault that lasts for at most so long."""
    seconds = r.random() ** 2 * lasting_s
    if what.startswith("jump"):
        seconds = r.choice((-3600.0, -5.0, 5.0, 90.0, 3600.0))
    share = r.choice((0.2, 0.5, 1.0))
    return Fault(
        at_s=at_s, what=what, where=r.randrange(60), seconds=seconds, share=share
    )


def _swizzle(r: Random, horizon_s: float) -> list[Fault]:
    """Cut the links one by one, and restore them in another order."""
    at_s = r.random() * horizon_s
    order = list(range(3))
    r.shuffle(order)
    return [
        Fault(
            at_s=at_s + 3.0 * place,
            what="cut",
            where=who,
            seconds=r.random() * 60.0,
        )
        for place, who in enumerate(order)
    ]
