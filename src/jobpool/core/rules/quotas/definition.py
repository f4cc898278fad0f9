"""What a quota, a need and a tenant's rule are, as code and configuration say them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from jobpool.core.rules.quotas.breaker import BreakerRule
from jobpool.core.rules.quotas.budget import RETRIES, RetryBudget
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.shares import KindRule, PoolRule
from jobpool.core.units import show_duration
from jobpool.errors import ConfigError

KIND_PREFIX = "kind:"
"""A kind's own cap is the quota of this and the kind: ``kind:shop.charge``."""
TENANT = "tenant"
"""The quota of ``[tenants]`` rules, and what ``per`` says to count by tenant."""
_TAKEN = frozenset({TENANT, RETRIES})
ARGUMENTS = "args."
"""What ``per`` begins with if it counts by an argument."""
NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
COUNT_MAX = 1_000_000
"""The largest cap, burst and cost."""
WEIGHT_MIN, WEIGHT_MAX = 0.01, 1000.0
REFILL_MAX_S = 366 * 86400.0
"""The longest that an empty bucket may take to be full again."""
DEFAULT_WAIT_S = 5.0
DEFAULT_THROTTLE_MAX_S = 900.0

_PER_ARGUMENT = re.compile(r"args(?:\.[A-Za-z_][A-Za-z0-9_]{0,99}){1,8}")


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A named cap, rate or both, which kinds share; see `check_quota`.

    One without any number holds nothing back, until the configuration or an operator
    gives it one.
    """

    name: str
    rate: Rate | None = None
    burst: int | None = None
    """Permits that may be used at once after a pause; None: `Rate.default_burst`."""
    concurrency: int | None = None
    """Permits that may be held at the same time."""
    per: str | None = None
    """``tenant`` or ``args.NAME``: a bucket for each value of it. None: one bucket."""
    host_only: bool = False
    """Each host counts its own jobs alone, and the store knows nothing of it."""
    wait_s: float = DEFAULT_WAIT_S
    """How long ``permit()`` waits before the job is snoozed."""
    throttle_max_s: float = DEFAULT_THROTTLE_MAX_S
    """The longest that a bucket is blocked because a service said so."""
    breaker: BreakerRule | None = None
    """When its service is taken to be down; each bucket has its own."""
    retry_budget: RetryBudget | None = None
    """How many retries of jobs that need it may begin; each bucket has its own."""
    source: str = "code"
    """Who says these numbers, for people: ``code``, ``configuration`` or both."""

    @property
    def burst_in_force(self) -> int | None:
        """The burst, or what it is by default; None without a rate."""
        if self.rate is None:
            return None
        return self.rate.default_burst if self.burst is None else self.burst

    @property
    def path(self) -> str | None:
        """The path of the argument that it counts by (``vendor_id``), if it does."""
        if self.per is None or not self.per.startswith(ARGUMENTS):
            return None
        return self.per.removeprefix(ARGUMENTS)


class Need(msgspec.Struct, frozen=True):
    """A job of a kind takes permits of a quota when it begins."""

    quota: str
    cost: int = 1


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant may use; what is None is as ``*`` has it."""

    name: str
    """``*``: of all tenants that have no value of their own."""
    concurrency: int | None = None
    rate: Rate | None = None
    burst: int | None = None
    weight: float | None = None
    """Its share, in pools that are fair by tenant; 1 if nobody says anything."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a run publishes: the quotas of its code and configuration, merged.

    A kind's own cap is in it as a quota, and among the kind's needs: `own_cap`.
    """

    quotas: tuple[Quota, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    pools: tuple[PoolRule, ...] = ()
    """Those in which jobs go before each other in another way than in all others."""
    kinds: tuple[KindRule, ...] = ()
    aliases: Mapping[str, str] = {}
    """Former names of kinds with needs, and the kinds: jobs stored with them count."""

    @property
    def is_asking(self) -> bool:
        """Whether older code, which leases in the plain order alone, is to stop."""
        budgets = (self.retry_budget, *(one.retry_budget for one in self.kinds))
        return bool(self.tenants or self.pools or any(budgets))

    retry_budget: RetryBudget | None = None
    """Of the whole fleet."""


def own_cap(kind: str, concurrency: int) -> tuple[Quota, Need]:
    """Return the quota that is a kind's own cap, and the kind's need of it."""
    name = KIND_PREFIX + kind
    return Quota(name=name, concurrency=concurrency), Need(name)


def parse_weight(value: object, what: str = "weight") -> float:
    """Read the weight of a tenant or a kind.

    Raises:
        ConfigError: it is not a number from 0.01 to 1000.
    """
    weight = 0.0
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        weight = float(min(value, 2 * WEIGHT_MAX))
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise ConfigError(
            f"{what}: expected a weight from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, such as "
            f"2 for twice as much as others, got {str(value)[:40]}"
        )
    return weight


def check_name(name: object, what: str = "quota") -> str:
    """Return a name that a quota may have.

    Raises:
        ConfigError: it has other signs, is too long, or means something else.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in _TAKEN:
        raise ConfigError(
            f"{what}: {str(name)[:60]!r} is no name for a quota; expected 1 to 100 "
            "letters, digits or any of _ . - (not 'tenant' or 'retries': those are "
            "what [tenants] and [retries] count by)"
        )
    return name


def check_quota(quota: Quota, what: str = "") -> Quota:
    """Return a quota if it can be kept.

    Args:
        quota: as declared or configured.
        what: where that was, for the error message.

    Raises:
        ConfigError: a name or number is wrong, or two of them contradict each other.
    """
    what = what or f"quota {quota.name[:100]!r}"
    if not quota.name.startswith(KIND_PREFIX):
        check_name(quota.name, what)
    if quota.rate is None and quota.burst is not None:
        raise ConfigError(
            f"{what}: burst {quota.burst} without a rate says nothing; give a rate, "
            'such as rate="10/s", or leave burst out'
        )
    check_numbers(quota, what)
    per = quota.per
    if per is not None and per != TENANT and not _PER_ARGUMENT.fullmatch(per):
        raise ConfigError(
            f"{what}: per={per[:60]!r} cannot be counted by; expected "
            f'"{TENANT}" or an argument such as "args.vendor_id"'
        )
    if quota.host_only and per is not None:
        raise ConfigError(
            f'{what}: scope="host" together with per={per!r} is not possible; count by '
            'a value in the fleet (scope="fleet"), or leave per out'
        )
    if quota.host_only and quota.rate is not None:
        raise ConfigError(
            f'{what}: scope="host" has no rate; give concurrency= alone, or scope='
            '"fleet" for a rate'
        )
    return quota


def check_numbers(numbers: Quota | Tenant, what: str) -> None:
    """Check a cap, a rate and a burst.

    Raises:
        ConfigError: one is out of range, or a bucket would take too long to be full.
    """
    for option in ("concurrency", "burst"):
        value = getattr(numbers, option)
        good = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (good and 1 <= value <= COUNT_MAX):
            raise ConfigError(
                f"{what}: {option}={str(value)[:40]} is out of range; expected 1 to "
                f"{COUNT_MAX:,} (to let nothing begin, pause it)"
            )
    rate = numbers.rate
    if rate is None:
        return
    burst = rate.default_burst if numbers.burst is None else numbers.burst
    if burst / rate.per_second > REFILL_MAX_S:
        raise ConfigError(
            f"{what}: a burst of {burst:,} at {rate} would take "
            f"{show_duration(burst / rate.per_second)} to be full again; expected at "
            f"most {show_duration(REFILL_MAX_S)}"
        )


def check_need(quota: Quota, cost: object, what: str) -> Need:
    """Return a kind's need of a quota.

    Raises:
        ConfigError: the cost is not a number from 1, or the quota can never have as
            many permits.
    """
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 1:
        raise ConfigError(
            f"{what}: a cost of {str(cost)[:40]} is out of range; expected a whole "
            "number from 1"
        )
    for most, name in (
        (quota.concurrency, "concurrency"),
        (quota.burst_in_force, "burst"),
    ):
        if most is not None and cost > most:
            raise ConfigError(
                f"{what}: a cost of {cost} of quota {quota.name!r} could never be had: "
                f"its {name} is {most}; lower the cost, or raise the {name}"
            )
    return Need(quota.name, cost)
