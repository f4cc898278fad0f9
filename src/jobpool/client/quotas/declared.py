"""The quotas that the code of one application declares, and what its kinds need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec

from jobpool.client.declare.declaration import positive_s
from jobpool.client.quotas.counted import CountedArguments
from jobpool.client.quotas.quota import Cost, Quota
from jobpool.client.quotas.running import RunningCall, entered
from jobpool.core.rules.quotas import definition
from jobpool.core.rules.quotas.breaker import parse_breaker
from jobpool.core.rules.quotas.budget import RetryBudget, parse_budget
from jobpool.core.rules.quotas.definition import check_need, check_numbers, check_quota
from jobpool.core.rules.quotas.rate import Rate, parse_rate
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import ConfigError

_SCOPES = {"fleet": False, "host": True}


class DeclaredQuotas:
    """The quotas that the code of one application declares."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._quotas: dict[str, Quota] = {}

    def declare(
        self,
        name: str,
        *,
        rate: str | None,
        burst: int | None,
        concurrency: int | None,
        per: str | None,
        scope: str,
        wait: DurationLike,
        throttle_max: DurationLike,
        breaker: Mapping[str, Any] | None,
        retry_budget: float | Mapping[str, Any] | None,
    ) -> Quota:
        """See `JobPool.quota`."""
        definition.check_name(name)
        what = f"quota {name!r}"
        host_only = _SCOPES.get(str(scope))
        if host_only is None:
            raise ConfigError(
                f'{what}: scope={str(scope)[:40]!r} is unknown; expected "fleet", or '
                '"host" for what each host counts alone'
            )
        read = definition.Quota(
            name=name,
            rate=_rate(rate, f"{what}: rate"),
            burst=burst,
            concurrency=concurrency,
            per=_text(per, f"{what}: per"),
            host_only=host_only,
            wait_s=duration_s(wait, f"{what}: wait"),
            throttle_max_s=_positive_s(throttle_max, f"{what}: throttle_max"),
            breaker=None
            if breaker is None
            else parse_breaker(breaker, f"{what}: breaker"),
            retry_budget=read_budget(retry_budget, f"{what}: retry_budget"),
        )
        quota = Quota(check_quota(read, what), self)
        with self._lock:
            other = self._quotas.setdefault(name, quota)
        if other.definition != read:
            raise ConfigError(
                f"{what} is declared twice, with {_differing(other, read)}; declare it "
                "once and import it from there, or give one of them another name"
            )
        return other

    @property
    def is_used(self) -> bool:
        """Whether there are any: without, nobody asks for the running call."""
        return bool(self._quotas)

    def definitions(self) -> tuple[definition.Quota, ...]:
        """Return what is declared."""
        return tuple(quota.definition for quota in self._quotas.values())

    def costs(self, quotas: object) -> tuple[Cost, ...]:
        """Return what a decorator names in ``quotas=``.

        Raises:
            ConfigError: an element is no quota of this application, comes twice, or
                has a cost that it can never give.
        """
        costs = tuple(map(self._cost, _each(quotas)))
        names = [cost.quota.name for cost in costs]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"quotas: {name!r} is named twice; name it once, with the sum: "
                    "quota.cost(2)"
                )
        return costs

    def of_handler(
        self, function: Callable[..., Any], kind: str, costs: Sequence[Cost]
    ) -> HandlerQuotas:
        """Return what the quotas that a handler names have to do with its calls.

        Raises:
            ConfigError: one counts by an argument that it does not have, or whose
                default cannot be counted by.
        """
        paths = ((quota.definition.path, quota.name) for quota, _ in costs)
        counted = {path: name for path, name in paths if path is not None}
        held = frozenset(quota.name for quota, _ in costs)
        return HandlerQuotas(
            self, kind, held, CountedArguments(function, kind, counted)
        )

    def running(
        self,
        kind: str,
        held: frozenset[str] = frozenset(),
        counted: CountedArguments | None = None,
        payload: bytes = b"{}",
    ) -> AbstractContextManager[None]:
        """Let a call be the running one in the block; as `RunningCall`."""
        return entered(RunningCall(self, kind, held, counted, payload))

    def _cost(self, one: object) -> Cost:
        if isinstance(one, str):
            known = ", ".join(self._quotas) or "none"
            hint = "give the object that jobs.quota(...) has returned, not its name"
            if one not in self._quotas:
                hint = f"this JobPool declares no such quota (it declares {known})"
            raise ConfigError(f"quotas: {one[:60]!r} is text; {hint}")
        cost = Cost(one, 1) if isinstance(one, Quota) else one
        if not isinstance(cost, Cost):
            raise ConfigError(
                "quotas: expected what jobs.quota(...) returns, or quota.cost(2), got "
                f"{type(one).__name__}"
            )
        if not cost.quota.is_of(self):
            raise ConfigError(
                f"quotas: {cost.quota.name!r} belongs to another JobPool; declare it "
                "with jobs.quota(...) of the one whose handler this is"
            )
        check_need(cost.quota.definition, cost.cost, "quotas")
        return cost


class HandlerQuotas(NamedTuple):
    """What an application's quotas have to do with the calls of one handler."""

    owner: DeclaredQuotas
    kind: str
    held: frozenset[str]
    """The quotas of which its jobs have permits since they began."""
    counted: CountedArguments

    def running(self, payload: bytes) -> AbstractContextManager[None]:
        """Let a call with these arguments be the running one in the block."""
        return self.owner.running(self.kind, self.held, self.counted, payload)


def checked_cap(concurrency: int | None) -> int | None:
    """Return a kind's own cap.

    Raises:
        ConfigError: it is not a number that a cap can be.
    """
    if concurrency is not None:
        check_numbers(definition.Quota(name="", concurrency=concurrency), "job")
    return concurrency


def read_budget(
    budget: float | Mapping[str, Any] | None, what: str = "retry_budget"
) -> RetryBudget | None:
    """Return a retry budget.

    Raises:
        ConfigError: it is none, or a number is out of range.
    """
    return None if budget is None else parse_budget(budget, what)


def _each(quotas: object) -> Iterable[object]:
    if isinstance(quotas, (str, Quota, Cost)) or not isinstance(quotas, Iterable):
        raise ConfigError(
            f"quotas: expected a list of quotas, got {type(quotas).__name__}; write "
            "quotas=[stripe, vendor.cost(2)]"
        )
    return quotas


def _rate(rate: object, what: str) -> Rate | None:
    return None if rate is None else parse_rate(rate, what)


def _text(value: object, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{what}: expected text, got {type(value).__name__}")
    return value


def _positive_s(value: DurationLike, what: str) -> float:
    seconds = positive_s(value, what)
    if seconds is None:
        raise ConfigError(f"{what}: expected a duration, got None")
    return seconds


def _differing(one: Quota, other: definition.Quota) -> str:
    before, after = map(msgspec.structs.asdict, (one.definition, other))
    return ", ".join(
        f"{name}: {before[name]} and {after[name]}"
        for name in before
        if before[name] != after[name]
    )
