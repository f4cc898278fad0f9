"""Settings for the simulated supervisors, and what their application declares."""

from __future__ import annotations

import msgspec

from jobpool.core.application.app_report import AppReport
from jobpool.core.application.handler_spec import (
    HOOK_DEAD,
    HOOK_QUARANTINED,
    HandlerSpec,
)
from jobpool.core.config.settings import (
    MemoryAdmission,
    PoolSettings,
    Retention,
    Settings,
)
from jobpool.core.rules.limits import Limits, PoolLimits
from jobpool.core.rules.policy import Policy, Rerun
from simulation.plan import Plan
from support.store.history import Budgets

MIB = 2**20
LONGER = {"succeeded": 1, "canceled": 2, "dead": 3, "quarantined": 4}
"""How much longer jobs are kept than those that have succeeded, by state."""
LONG_S = 900.0
"""The time limit of jobs that may kill their host late."""


def call_of(payload: bytes) -> str:
    """Return the call that a job stems from."""
    arguments = msgspec.json.decode(payload)
    if "job" in arguments:
        facts = arguments["job"]
        return f"hook:{facts['id']}:{facts['state']}"
    return str(arguments["call"])


def settings_of(plan: Plan) -> Settings:
    """Return what the supervisors are told."""
    pools = tuple(
        PoolSettings(
            name=name,
            size_min=smallest,
            size_max=largest,
            limits=PoolLimits(timeout_s=plan.timeout_s, memory_bytes=512 * MIB),
            recycle_jobs=plan.recycle_jobs,
            recycle_age_s=max(3600.0, 10 * plan.checks_s),
            drain_s=plan.drain_s,
            idle_shrink_s=5.0,
        )
        for name, smallest, largest in plan.pools
    )
    return Settings(
        store="sqlite:////sim.db",
        app="sim",
        app_directory="/",
        pools=pools,
        lease_ttl_s=plan.ttl_s,
        memory_budget_bytes=plan.budget_bytes,
        memory_admission=MemoryAdmission.OBSERVED
        if plan.little_memory
        else MemoryAdmission.LIMITS,
        retention=_retention(plan),
    )


def _retention(plan: Plan) -> Retention:
    if plan.kept_s is None:
        return Retention()
    kept = {f"{state}_s": plan.kept_s * times for state, times in LONGER.items()}
    return Retention(**kept)


def report_of(plan: Plan) -> AppReport:
    """Return what the application declares: four kinds for each pool."""
    handlers: list[HandlerSpec] = []
    for name, _, _ in plan.pools:
        handlers += [
            HandlerSpec(kind=f"{name}.work", pool=name),
            HandlerSpec(
                kind=f"{name}.once", pool=name, policy=Policy(rerun=Rerun.NEVER)
            ),
            HandlerSpec(
                kind=f"{name}.beat",
                pool=name,
                limits=Limits(heartbeat_timeout_s=3.0, soft_timeout_s=8.0),
                policy=Policy(max_attempts=3, max_crashes=2),
            ),
            HandlerSpec(
                kind=f"{name}.long", pool=name, limits=Limits(timeout_s=LONG_S)
            ),
        ]
    if plan.hooks:
        pool = plan.pools[0][0]
        handlers += [
            HandlerSpec(kind=HOOK_DEAD, pool=pool),
            HandlerSpec(kind=HOOK_QUARANTINED, pool=pool),
        ]
    return AppReport(handlers=tuple(handlers), base_rss_bytes=20 * MIB)


def budgets_of(report: AppReport, timeout_s: float) -> dict[str, Budgets]:
    """Return what may be spent, by kind."""
    return {
        spec.kind: Budgets(
            max_attempts=spec.policy.max_attempts,
            max_crashes=spec.policy.max_crashes,
            max_lost=spec.policy.max_lost,
            never_again=spec.policy.rerun is Rerun.NEVER,
            timeout_s=spec.limits.timeout_s or timeout_s,
            heartbeat_timeout_s=spec.limits.heartbeat_timeout_s,
        )
        for spec in report.handlers
    }
