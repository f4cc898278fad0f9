"""Completes a world's history: every job's final state, and what was left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobpool.store.statements.moment import LATE_MAX_MS
from simulation.application import LONGER, budgets_of
from simulation.flows import copied_call_of
from simulation.nemesis import EXCUSES
from support.store.history import Called, FinalJob, Keeping, Record, Settled

if TYPE_CHECKING:
    from simulation.world import World

CHECKS = 3
"""After so many rounds, what is to be deleted is gone."""


def conclude(world: World) -> None:
    """Complete a world's history."""
    history = world.history
    history.jobs = list(_final_jobs(world))
    history.budgets = budgets_of(world.report, world.plan.timeout_s)
    history.stale = world.database.stale
    history.litter = list(_litter(world))
    history.flows = list(world.flows.final())
    history.permits_left = list(world.quotas.left())
    faults = {fault.what for fault in world.plan.faults}
    fates = {fate.name for job in world.plan.jobs for fate in job.fates}
    history.excused = bool(
        faults & EXCUSES or fates & {"kill_zygote", "daemon_crash", "daemon"}
    )
    history.keeping = _keeping(world)
    if world.plan.hooks:
        history.records += _hooks_due(world)


def _keeping(world: World) -> Keeping | None:
    plan = world.plan
    if plan.kept_s is None:
        return None
    return Keeping(
        kept_s={state: plan.kept_s * times for state, times in LONGER.items()},
        store_ms=world.store_clock(world.hosts[0]).utc_ms(),
        late_s=CHECKS * plan.checks_s,
        early_s=LATE_MAX_MS / 1000,
    )


def _hooks_due(world: World) -> list[Record]:
    """Return a call for the hook of every bad end, each to be made once."""
    internal = {f.job for f in world.history.jobs if f.kind.startswith("jobpool:")}
    made: Counter[str] = Counter()
    calls: list[Record] = []
    for end in world.history.of(Settled):
        if end.receipt == "accepted" and end.hooked and end.job not in internal:
            call = f"hook:{end.job}:{end.wanted}"
            made[call] += 1
            calls.append(
                Called(at_s=end.at_s, call=f"{call}:{made[call]}", answer="unknown")
            )
    return calls


def _final_jobs(world: World) -> Iterator[FinalJob]:
    hooks: Counter[str] = Counter()
    standing = world.database.jobs.newest_first()
    for row in sorted([*world.deleted, *standing], key=lambda row: row.id):
        call = world.schedules.call_of(row, copied_call_of(row))
        if call.startswith("hook:"):
            hooks[call] += 1
            call = f"{call}:{hooks[call]}"
        yield FinalJob(
            job=row.id,
            kind=row.new.kind,
            call=call,
            state=row.state.value,
            attempt=row.attempt,
            failures=row.spent.failures,
            crashes=row.spent.crashes,
            interruptions=row.spent.interruptions,
            recoveries=row.spent.recoveries,
            max_attempts=row.new.max_attempts,
            attempts=tuple(
                (tried.shown.token, tried.shown.outcome.value) for tried in row.tried
            ),
        )


def _litter(world: World) -> Iterator[str]:
    for supervisor in world.supervisors:
        if supervisor.process.alive:
            yield f"{supervisor.name} does not end"
    for name, run in world.runs.items():
        for one in run.survivors():
            yield f"{name}: {type(one).__name__} {getattr(one, 'name', '')} lives"
        if held := world.database.jobs.held.get(name):
            yield f"{name} holds jobs {sorted(held)}"
    for name, entry in world.database.runs.items():
        is_here = world.runs[name].boot_id == world.runs[name].host.boot_id
        if entry.ended_at_ms is None and is_here:
            yield f"{name} is still open in the store"
