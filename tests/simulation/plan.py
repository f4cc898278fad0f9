"""A scenario as plain data: what a seed stands for, and what shrinking removes from.

Every part that happens by itself (a job, a fault, an operator's act) is one entry of a
list, so that a failing scenario can be made smaller by leaving entries out. What is
drawn while it runs comes from generators that are seeded by the scenario's seed and
their own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from jobpool.core.jobs.flow import NewFlow
from jobpool.core.rules.quotas.budget import RetryBudget
from jobpool.core.rules.quotas.definition import Need, Quota, Tenant
from jobpool.core.rules.quotas.shares import PoolRule
from jobpool.core.rules.schedules.policy import Policy
from jobpool.core.rules.schedules.rule import Rule

FateName = Literal[
    "ok",
    "fail",
    "give_up",
    "later",
    "crash",
    "exit",
    "hang",
    "leak",
    "stop",
    "silent",
    "lie",
    "garbage",
    "twice",
    "forge",
    "daemon",
    "daemon_crash",
    "beat",
    "ask",
    "done_crash",
    "kill_parent",
    "kill_host",
    "kill_zygote",
    "soft",
    "flood",
    "complete",
    "complete_not",
    "complete_fail",
    "complete_crash",
    "complete_hang",
    "snooze",
    "permit",
    "permit_keep",
    "permit_die",
    "permit_leave",
    "throttled",
    "told_to_wait",
    "complete_early",
    "grow",
]


class Fate(msgspec.Struct, frozen=True):
    """What an attempt does."""

    name: FateName
    seconds: float
    """For so long it works first."""
    again_in_s: float = 5.0
    """And asks to be tried again after so long, where it asks; or holds a permit for so
    long, or works on after it has completed its job; or says how long to wait."""


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be enqueued."""

    at_s: float
    kind: str
    pool: str
    fates: tuple[Fate, ...]
    """By attempt; the last one repeats."""
    delay_ms: int = 0
    priority: int = 0
    key: str | None = None
    unique: str | None = None
    expires_in_ms: int | None = None
    max_attempts: int | None = None
    snoozes: int = 0
    """So often its attempts say "not yet" before one of them meets a fate."""
    tenant: str | None = None
    value: str = ""
    """Of the argument that quotas may count by."""
    asks: str = ""
    """The quota of which its attempts ask for permits, or hear."""
    stamped: bool = True
    """Its client knows the kind's quotas."""
    again_s: tuple[float, ...] = ()
    """When its producer makes the same call again; there, a key says that it is."""


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A flow to be enqueued."""

    at_s: float
    flow: NewFlow
    members: tuple[tuple[int, JobPlan], ...]
    """With the numbers of their steps."""


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to be put, or one that the application declares."""

    name: str
    at_s: float
    """When it is put."""
    kind: str
    rule: Rule
    policy: Policy
    versions: tuple[str, ...] = ()
    """Of the application, that declare it; none: operators put it."""
    fates: tuple[Fate, ...]
    """Of its jobs' attempts, in turn."""


class QuotasPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one version of the application says of quotas."""

    quotas: tuple[Quota, ...]
    needs: Mapping[str, tuple[Need, ...]]
    """By kind."""
    caps: Mapping[str, int]
    """Kinds' own."""
    tenants: tuple[Tenant, ...] = ()
    """As configured."""
    pools: tuple[PoolRule, ...] = ()
    """As configured: those that are fair or aged."""
    retry_budget: RetryBudget | None = None
    """Of the fleet."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something bad, or an operator."""

    at_s: float
    what: str
    """A method of `nemesis.Nemesis`."""
    where: int = 0
    """Which supervisor, host or job; taken modulo how many there are."""
    seconds: float = 0.0
    """For so long, where it lasts."""
    share: float = 1.0
    """How often, where it is by chance."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole scenario."""

    seed: int
    shared: bool
    """Several hosts, leases that end by time; else one host."""
    supervisors: int
    hosts: int
    pools: tuple[tuple[str, int, int], ...]
    """Name, smallest and largest size."""
    recycle_jobs: int = 10_000
    budget_bytes: int | None = None
    ttl_s: float = 60.0
    drain_s: float = 5.0
    coarse: bool = True
    """Polls are rare, so that hours cost little."""
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]
    flows: tuple[FlowPlan, ...] = ()
    schedules: tuple[SchedulePlan, ...] = ()
    quotas: tuple[QuotasPlan, ...] = ()
    """By version of the application; none: it has no quotas."""
    quiet_at_s: float
    """From then on nothing bad happens; None does to a safety-only scenario."""
    hooks: bool = False
    little_memory: bool = False
    """Its hosts run short of memory now and then, and supervisors look at it."""
    timeout_s: float = 20.0
    checks_s: float = 0.0
    """Nothing that is done now and then is done more often, so that days cost little;
    0: it is short."""
    kept_s: float | None = None
    """How long jobs that have succeeded are kept; None: for longer than it lasts."""

    @property
    def is_long(self) -> bool:
        """Whether it takes days."""
        return self.checks_s > 0
