"""Makes a failing scenario smaller, and describes it so that a person can follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from simulation.plan import Plan
from simulation.simulate import Result, run
from support.store.history import Disturbed, RunBegan, RunEnded

T = TypeVar("T")
RUNS_MAX = 150
SHOWN_MAX = 60


def shrink(result: Result) -> Result:
    """Remove faults and jobs as long as the same promise is broken.

    Args:
        result: of a scenario in which something was found.

    Returns:
        The result of a scenario that is as small as could be found in some 150 runs.
    """
    rule, best, left = result.found[0].rule, result, RUNS_MAX

    def fails(plan: Plan) -> bool:
        nonlocal best, left
        left -= 1
        tried = run(plan)
        if left >= 0 and any(found.rule == rule for found in tried.found):
            best = tried
            return True
        return False

    replace = msgspec.structs.replace
    _smaller(best.plan.faults, lambda part: fails(replace(best.plan, faults=part)))
    _smaller(best.plan.jobs, lambda part: fails(replace(best.plan, jobs=part)))
    _smaller(
        best.plan.schedules, lambda part: fails(replace(best.plan, schedules=part))
    )
    _smaller(best.plan.flows, lambda part: fails(replace(best.plan, flows=part)))
    _smaller(best.plan.faults, lambda part: fails(replace(best.plan, faults=part)))
    for simpler in ({"supervisors": 1}, {"hooks": False}, {"recycle_jobs": 10_000}):
        fails(replace(best.plan, **simpler))  # type: ignore[arg-type]
    return best


def _smaller(whole: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> None:
    """Remove halves, then quarters, and so on, while it still fails."""
    kept = tuple(whole)
    size = max(1, len(kept) // 2)
    while kept:
        at = 0
        while at < len(kept):
            part = kept[:at] + kept[at + size :]
            if fails(part):
                kept = part
            else:
                at += size
        if size == 1:
            return
        size //= 2


def story(result: Result) -> str:
    """Describe a finding: the promise, the scenario, the whole history of the job."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    plan = result.plan
    first = result.found[0]
    yield f"seed {plan.seed}: {first.rule} is broken: job {first.job}: {first.text}"
    yield f"again: scripts/simulate --seed0 {plan.seed} --seeds 1"
    yield (
        f"shrunk to {len(plan.faults)} faults and {len(plan.jobs)} jobs, "
        f"{plan.supervisors} supervisors on {plan.hosts} hosts, "
        f"{'shared' if plan.shared else 'one-host'} store, pools {plan.pools}"
    )
    for fault in plan.faults:
        yield f"  fault {fault}"
    for job in plan.jobs:
        yield f"  job {job}"
    for schedule in plan.schedules:
        yield f"  schedule {schedule}"
    for flow in plan.flows:
        yield f"  flow {flow}"
    yield "what happened:"
    about = (RunBegan, RunEnded, Disturbed)
    records = [
        record
        for record in result.history.records
        if isinstance(record, about) or getattr(record, "job", 0) == first.job
    ]
    if first.job == 0:
        records = records[-SHOWN_MAX:]
    for record in records:
        yield f"  {record}"
