"""Retry budgets: retries may begin as a share of first attempts, or at a floor.

In any minute at most ``max(floor, ratio * first attempts of that minute)`` retries
begin, and in each slot of the window a share of that: what was not used for a while is
not made up for at once, since the service that retries wait for may just have come
back. First attempts are counted, and never held back.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import cast

import msgspec

from jobpool.core.rules.quotas.rate import Rate, parse_rate
from jobpool.core.rules.quotas.window import SLOTS, Window, next_slot_ms
from jobpool.errors import ConfigError

RETRIES = "retries"
"""The quota whose bucket the fleet's budget is; see `names_of` for others."""
WINDOW_S = 60.0
RATIO_MAX = 100.0
FLOOR_MIN = 1.0
"""The least floor, a minute: else a retry might never begin."""
_GRAIN = 1e-9
_RATIO = 0.2
_KEYS = {"ratio", "floor"}


class RetryBudget(msgspec.Struct, frozen=True):
    """How many retries may begin: a share of the first attempts, or a floor.

    In the last minute at most ``max(floor, ratio * first attempts)``; see the module.
    """

    ratio: float = _RATIO
    floor: Rate = Rate(1, 1.0)
    """So many may begin even if there are hardly any first attempts."""


def of_kind(kind: str) -> str:
    """Return the quota whose bucket a kind's budget is."""
    return f"{RETRIES}:kind:{kind}"


def of_quota(quota: str) -> str:
    """Return the quota whose buckets the budgets of a quota's buckets are."""
    return f"{RETRIES}:quota:{quota}"


def counted_like(quota: str) -> str:
    """Return the quota by whose values the buckets of one are told apart.

    That is itself; or, if they are those of a budget, the quota that this is of.
    """
    return quota.removeprefix(of_quota(""))


def names_of(
    budgets: Container[str], kind: str, needed: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield the budgets that a job's retries are under: each one's quota and value.

    Args:
        budgets: the quotas whose buckets budgets are.
        kind: the job's.
        needed: the quotas that it needs, and the values of their buckets.
    """
    own = [(RETRIES, ""), (of_kind(kind), "")]
    yield from (
        one
        for one in (*own, *((of_quota(quota), value) for quota, value in needed))
        if one[0] in budgets
    )


def allowed(budget: RetryBudget, window: Window, now_ms: int) -> int:
    """Return how many retries a minute may have now.

    Args:
        budget: the rule.
        window: first attempts, and retries.
        now_ms: the store's clock.
    """
    firsts, _ = window.sums(now_ms, WINDOW_S)
    floor = budget.floor.per_second * WINDOW_S
    return math.floor(max(floor, budget.ratio * firsts) + _GRAIN)


def free(budget: RetryBudget, window: Window, now_ms: int) -> int:
    """Return how many retries may begin now."""
    most = allowed(budget, window, now_ms)
    _, retries = window.sums(now_ms, WINDOW_S)
    _, just_now = window.current(now_ms, WINDOW_S)
    return max(0, min(most - retries, math.ceil(most / SLOTS) - just_now))


def check_budget(budget: RetryBudget, what: str) -> RetryBudget:
    """Return a budget that can be kept.

    Raises:
        ConfigError: a number is out of range.
    """
    if not 0 <= budget.ratio <= RATIO_MAX:
        raise ConfigError(
            f"{what}: a ratio of {budget.ratio:g} is out of range; expected 0 to "
            f"{RATIO_MAX:g}, such as 0.2 for one retry for five first attempts"
        )
    if budget.floor.per_second * WINDOW_S < FLOOR_MIN - _GRAIN:
        raise ConfigError(
            f"{what}: a floor of {budget.floor} is too low: jobs might never be "
            'retried; expected at least "1/m"'
        )
    return budget


def parse_budget(value: object, what: str = "retry_budget") -> RetryBudget:
    """Read ``0.2``, or ``{"ratio": 0.2, "floor": "1/s"}``.

    Raises:
        ConfigError: it is neither, or a value is wrong.
    """
    table: Mapping[str, object]
    table = value if isinstance(value, Mapping) else {"ratio": value}
    ratio, floor = table.get("ratio", _RATIO), table.get("floor")
    is_number = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
    if not is_number or table.keys() - _KEYS:
        raise ConfigError(
            f"{what}: expected a share such as 0.2 for one retry for five first "
            'attempts, or {"ratio": 0.2, "floor": "1/s"}, got ' + repr(value)[:60]
        )
    budget = RetryBudget(ratio=cast("float", ratio))
    if floor is not None:
        least = parse_rate(floor, f"{what}: floor")
        budget = msgspec.structs.replace(budget, floor=least)
    return check_budget(budget, what)


def show_budget(budget: RetryBudget) -> str:
    """Format a budget as a person reads it."""
    return f"{100 * budget.ratio:.3g} % of first attempts, at least {budget.floor}"


def opens_at_ms(now_ms: int) -> int:
    """Return when a budget that is used up is to be looked at again."""
    return next_slot_ms(now_ms, WINDOW_S)


def begun(window: Window, now_ms: int, *, firsts: int = 0, retries: int = 0) -> Window:
    """Return a budget's window after attempts began, or (negative) did not."""
    return window.add(now_ms, WINDOW_S, firsts, retries)
