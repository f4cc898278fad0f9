"""Draws a scenario of days from a seed: what only time shows.

Theory of operation. Virtual time jumps, so days cost only what happens in them: few
jobs, and some hundred of each rare event. These are the situations that short lives
never reach: crashes so far apart that they do not count together; jobs that are delayed
for days; attempts of hours, which deploys interrupt; jobs that kill their supervisor
once a day, after hours; the deletion of finished jobs, whose keys are then free again;
runs that are gone for so long that they are forgotten, and come back; hosts that are
away while jobs fall due, expire and are requested every day.
"""

from __future__ import annotations

from random import Random

from simulation.draw import FATES, one_fault
from simulation.plan import Fate, Fault, JobPlan, Plan

EVERY = 50
"""One seed in so many stands for days."""
HOUR_S, DAY_S = 3600.0, 86400.0
CHECKS = 60
FAULTS = {
    "kill_supervisor": 6,
    "kill_both": 1,
    "kill_at_step": 2,
    "stop_supervisor": 3,
    "stop_at_end": 1,
    "drain": 4,
    "quit": 2,
    "reload": 1,
    "kill_child": 3,
    "oom_kill": 2,
    "stop_child": 1,
    "kill_zygote": 2,
    "cut": 2,
    "outage": 1,
    "mute": 3,
    "lose": 1,
    "reboot": 3,
    "away": 3,
    "sleep_host": 4,
    "jump_wall": 2,
    "jump_store": 1,
    "cancel": 3,
    "revive": 4,
    "pause": 2,
}
LASTING_S = {
    "stop_supervisor": 2 * DAY_S,
    "sleep_host": 4 * DAY_S,
    "away": 3 * DAY_S,
    "pause": DAY_S,
    "cut": 1800.0,
    "outage": 1800.0,
    "mute": 600.0,
    "lose": 600.0,
}
WORKS_S = (0.01, 2.0, 600.0, 5000.0, 15_000.0)
SNOOZES_S = (0.5 * HOUR_S, 7 * HOUR_S, 20 * HOUR_S, 40 * HOUR_S)


def is_long(seed: int) -> bool:
    """Say whether a seed stands for days."""
    return seed % EVERY == EVERY - 1


def draw_long(seed: int) -> Plan:
    """Return the scenario of a seed that stands for days."""
    r = Random(seed)
    shared = r.random() < 0.5
    supervisors = r.choice((1, 2, 2)) if shared else 1
    days = r.choice((3, 5, 9))
    horizon_s = days * DAY_S
    pools = ("cpu", "io")[: r.choice((1, 1, 2))]
    many = r.choice((3, 6))
    jobs = [_job(r, r.choice(pools), horizon_s, f"{n}") for n in range(many)]
    jobs += [_crasher(r, pools[0], horizon_s) for _ in range(r.choice((0, 1)))]
    if r.random() < 0.5:
        jobs += _daily(r, pools[0], days)
    return Plan(
        seed=seed,
        shared=shared,
        supervisors=supervisors,
        hosts=r.choice((supervisors, supervisors, 1)),
        pools=tuple((name, 1, 1 + r.choice((0, 0, 1))) for name in pools),
        recycle_jobs=r.choice((10_000, 10_000, 1)),
        ttl_s=horizon_s / r.choice((60, 100)),
        jobs=tuple(jobs),
        faults=tuple(_faults(r, days)),
        quiet_at_s=horizon_s + HOUR_S,
        hooks=r.random() < 0.3,
        timeout_s=6 * HOUR_S,
        checks_s=horizon_s / CHECKS,
        kept_s=r.choice((6 * HOUR_S, DAY_S, 3 * DAY_S)),
    )


def _job(r: Random, pool: str, horizon_s: float, name: str) -> JobPlan:
    is_keyed = r.random() < 0.4
    at_s = r.random() * horizon_s * 0.8
    again_s = tuple(r.uniform(at_s, horizon_s) for _ in range(3)) if is_keyed else ()
    return JobPlan(
        at_s=at_s,
        kind=f"{pool}.{r.choice(('work', 'work', 'work', 'once', 'beat'))}",
        pool=pool,
        fates=tuple(_fate(r) for _ in range(r.choice((1, 2, 4, 6)))),
        delay_ms=r.choice((0, 0, 3_600_000, 100_000_000)),
        priority=r.choice((0, 0, 5)),
        key=name if is_keyed else None,
        again_s=again_s,
        expires_in_ms=r.choice((None, None, None, 20_000_000)),
        max_attempts=r.choice((None, None, 12)),
    )


def _fate(r: Random) -> Fate:
    names = {**FATES, "later": 12, "kill_parent": 5}
    (name,) = r.choices(list(names), list(names.values()))
    return Fate(name, r.choice(WORKS_S), r.choice(SNOOZES_S))  # type: ignore[arg-type]


def _crasher(r: Random, pool: str, horizon_s: float) -> JobPlan:
    """Return a job that crashes now and then: its window decides how it ends."""
    fates: list[Fate] = []
    for _ in range(4):
        fates.append(Fate("crash", 2.0))
        fates += [
            Fate("later", 2.0, r.choice(SNOOZES_S)) for _ in range(r.choice((1, 2)))
        ]
    return JobPlan(
        at_s=r.random() * horizon_s / 2,
        kind=f"{pool}.work",
        pool=pool,
        fates=(*fates, Fate("ok", 2.0)),
        max_attempts=20,
    )


def _daily(r: Random, pool: str, days: int) -> list[JobPlan]:
    """Return a job requested every day, if the previous day's has finished."""
    hour_s = r.random() * DAY_S
    return [
        JobPlan(
            at_s=day * DAY_S + hour_s,
            kind=f"{pool}.work",
            pool=pool,
            fates=(Fate("ok", 600.0) if r.random() < 0.7 else _fate(r),),
            unique="daily",
        )
        for day in range(days)
    ]


def _faults(r: Random, days: int) -> list[Fault]:
    horizon_s = days * DAY_S
    found = []
    for _ in range(r.choice((1, 3, 6, 10))):
        (what,) = r.choices(list(FAULTS), list(FAULTS.values()))
        at_s = r.random() * horizon_s
        lasting_s = min(LASTING_S.get(what, 60.0), horizon_s - at_s)
        found.append(one_fault(r, what, at_s, lasting_s))
    if r.random() < 0.4:  # a deploy every day, or whatever ends supervisors so often
        what = r.choice(("drain", "drain", "kill_supervisor", "reboot"))
        hour_s = r.random() * DAY_S
        for day in range(days):
            found += [
                Fault(at_s=day * DAY_S + hour_s + number, what=what, where=number)
                for number in range(2)
            ]
    if r.random() < 0.3:  # hosts that keep local time, at the end of summer
        at_s, by_s = r.random() * horizon_s, r.choice((-HOUR_S, HOUR_S))
        found += [
            Fault(at_s=at_s, what="jump_wall", where=host, seconds=by_s)
            for host in range(2)
        ]
    return found
