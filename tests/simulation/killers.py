"""Scenarios in which a job kills its host, or its supervisor, late.

It does so whenever it runs, always after the same time, which is longer than the first
probation. Innocent jobs run beside it, some of them for longer than that. Nothing else
goes wrong, so nothing else can be the cause of a death.
"""

from __future__ import annotations

import math
from random import Random

from simulation.plan import Fate, JobPlan, Plan

STRIKES_AFTER_S = (11.0, 500.0)
LASTS_S = (1.0, 500.0)
COME_WITHIN_S = 40.0


def draw_killers(r: Random, seed: int) -> Plan:
    """Return a scenario with one or two killers, and innocents."""
    shared = r.random() < 0.3
    supervisors, size = r.choice((1, 2, 3)), r.choice((1, 2, 4))
    killers = [
        _job(
            r, Fate(r.choice(("kill_host", "kill_parent")), _spread(r, STRIKES_AFTER_S))
        )  # type: ignore[arg-type]
        for _ in range(r.choice((1, 1, 1, 2)))
    ]
    innocents = [
        _job(r, Fate("ok", _spread(r, LASTS_S))) for _ in range(r.choice((2, 4, 8)))
    ]
    return Plan(
        seed=seed,
        shared=shared,
        supervisors=supervisors,
        hosts=r.choice((1, supervisors)) if shared else 1,
        pools=(("cpu", size, size),),
        ttl_s=20.0 if shared else 300.0,
        jobs=(*killers, *innocents),
        faults=(),
        quiet_at_s=60.0,
    )


def _job(r: Random, fate: Fate) -> JobPlan:
    at_s = r.random() * COME_WITHIN_S
    return JobPlan(at_s=at_s, kind="cpu.long", pool="cpu", fates=(fate,))


def _spread(r: Random, between_s: tuple[float, float]) -> float:
    """Draw a duration such that each order of magnitude is as likely."""
    low, high = map(math.log, between_s)
    return math.exp(r.uniform(low, high))
