"""Quotas and tenants of a store: read, and changed as a person does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from jobpool.client.gateway import Gateway
from jobpool.client.job import operate
from jobpool.core.rules.quotas.breaker import show_breaker
from jobpool.core.rules.quotas.budget import show_budget
from jobpool.core.rules.quotas.definition import Quota, Tenant
from jobpool.core.rules.quotas.rate import Rate, parse_rate
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jobpool.store.records.quotas import BucketRow, QuotaRow, TenantRow

_BUCKETS_MAX = 10_000


class BucketStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One value of what a quota counts by."""

    value: str
    """``""``: the quota counts by nothing, or the job has no such value."""
    used: int
    """Permits of its cap that are held."""
    free: int | None
    """Permits that can be had now; None: it has no numbers."""
    waiting: int
    """Jobs that wait for one."""
    opens: datetime | None
    """When there may be one at the earliest; None: now, or once one is returned."""
    reason: str | None
    """Why there is none now; None: there is one."""


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A quota as it is in force, and its use."""

    name: str
    concurrency: int | None
    rate: str | None
    burst: int | None
    per: str | None
    """What it counts by."""
    breaker: str | None
    """When its service is taken to be down."""
    retry_budget: str | None
    """How many retries of its jobs may begin."""
    source: str | None
    """Who says its numbers; None: no supervisor that runs publishes it."""
    kinds: tuple[str, ...]
    """Those whose jobs take permits of it when they begin."""
    used: int
    """Permits of its cap that are held, over all buckets."""
    waiting: int
    """Jobs that wait for one."""
    closed: int
    """Buckets that have no permit now."""
    set_by: str | None
    """Who has set numbers at run time."""
    set_until: datetime | None
    """None: nothing is set, or it holds until `QuotaOperations.reset`."""
    differing: str | None
    """How the definitions of the supervisors that run differ."""
    paused: bool


class TenantStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of a tenant, and what it uses."""

    name: str
    """``*``: of all that have none of their own."""
    concurrency: int | None
    rate: str | None
    burst: int | None
    is_set: bool
    """It was set at run time; else the configuration has it."""
    used: int
    waiting: int
    paused: bool


class QuotaOperations:
    """The quotas of the store, as they are in force. Made by `JobPool`.

    What changes one has a row in the audit trail, with its note of at most 1,000
    characters. Like all that needs the store, it cannot be used inside a handler.

    Args:
        gateway: to the store.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def list(self) -> tuple[QuotaStatus, ...]:
        """Read all quotas that a supervisor publishes or somebody has set, by name."""
        store = self._gateway.store("reading quotas")
        return tuple(map(_quota_status, store.quotas()))

    def get(self, name: str) -> QuotaStatus | None:
        """Read a quota; None: there is none of this name."""
        return next((one for one in self.list() if one.name == name), None)

    def buckets(self, name: str, limit: int = 100) -> tuple[BucketStatus, ...]:
        """Read the buckets of a quota, those first for which most jobs wait.

        Args:
            name: the quota.
            limit: the most; up to 10,000.

        Raises:
            UsageError: limit is out of range.
        """
        if not 1 <= limit <= _BUCKETS_MAX:
            raise UsageError(f"limit: expected 1 to {_BUCKETS_MAX:,}, got {limit}")
        store = self._gateway.store("reading quotas")
        return tuple(map(_bucket_status, store.buckets(name, limit)))

    def set(
        self,
        name: str,
        *,
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
        duration: DurationLike | None = None,
        note: str | None = None,
    ) -> bool:
        """Give a quota other numbers, on all hosts within 2 s.

        They are above those of code and configuration. That nobody has a quota of this
        name is no error: it may come.

        Args:
            name: the quota; ``kind:K`` for the own cap of a kind.
            rate: such as ``"5/s"``; None, as of the others: it stays as it is.
            burst: how many may begin at once after a pause.
            concurrency: how many may run at once.
            duration: ``"2h"``, seconds or a timedelta; None: until `reset`.
            note: why.

        Returns:
            False if it was so already, with the same end.

        Raises:
            UsageError: no number is given, or a value is wrong; nothing was changed.
        """
        from jobpool.operations.quotas import SetQuota  # noqa: PLC0415 - rare

        _check_given("set", rate, burst, concurrency)
        try:
            action = SetQuota(
                quota=name,
                rate=_rate(rate),
                burst=burst,
                concurrency=concurrency,
                for_s=None if duration is None else duration_s(duration, "duration"),
                note=note,
            )
        except ConfigError as exc:
            raise UsageError(f"{exc}; nothing was changed") from None
        return operate(self._gateway, action)

    def reset(self, name: str, *, note: str | None = None) -> bool:
        """Undo `set`, open what is blocked, close a breaker, and fill up the rate.

        Returns:
            False if there was nothing to undo.
        """
        from jobpool.operations.quotas import ResetQuota  # noqa: PLC0415 - rare

        return operate(self._gateway, ResetQuota(quota=name, note=note))


class TenantOperations:
    """What tenants may use, as it is in force. Made by `JobPool`.

    Changes are on record as those of `QuotaOperations`.

    Args:
        gateway: to the store.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def list(self) -> tuple[TenantStatus, ...]:
        """Read the tenants that have rules of their own or are paused, by name."""
        store = self._gateway.store("reading tenants")
        return tuple(map(_tenant_status, store.tenants()))

    def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        note: str | None = None,
    ) -> bool:
        """Give a tenant a rule of its own, on all hosts within 2 s.

        It takes the place of what was set for it before. What is None is as ``*`` has
        it.

        Args:
            name: the tenant; ``*``: all that have none of their own.
            concurrency: how many of its jobs may run at once, over all kinds.
            rate: how many may begin, such as ``"5/s"``.
            burst: how many at once after a pause.
            note: why.

        Returns:
            False if it was so already.

        Raises:
            UsageError: no number is given, or a value is wrong; nothing was changed.
        """
        from jobpool.operations.quotas import SetTenant  # noqa: PLC0415 - rare

        _check_given("set", rate, burst, concurrency)
        try:
            tenant = Tenant(
                name=name, concurrency=concurrency, rate=_rate(rate), burst=burst
            )
        except ConfigError as exc:
            raise UsageError(f"{exc}; nothing was changed") from None
        return operate(self._gateway, SetTenant(tenant=tenant, note=note))

    def remove(self, name: str, *, note: str | None = None) -> bool:
        """Undo `set`: the configuration's rule is in force again, if it has one.

        Returns:
            False if nothing was set for it.
        """
        from jobpool.operations.quotas import RemoveTenant  # noqa: PLC0415 - rare

        return operate(self._gateway, RemoveTenant(tenant=name, note=note))


def _check_given(what: str, *numbers: object) -> None:
    if all(number is None for number in numbers):
        raise UsageError(
            f"{what}: expected rate, burst or concurrency, got none of them; nothing "
            "was changed"
        )


def _rate(text: str | None) -> Rate | None:
    return None if text is None else parse_rate(text)


def _quota_status(row: QuotaRow) -> QuotaStatus:
    quota, override = row.quota, row.override
    concurrency, rate, burst = _numbers(quota)
    budget = row.budget or (quota.retry_budget if quota else None)
    return QuotaStatus(
        name=row.name,
        concurrency=concurrency,
        rate=rate,
        burst=burst,
        per=None if quota is None else quota.per,
        breaker=show_breaker(quota.breaker) if quota and quota.breaker else None,
        retry_budget=None if budget is None else show_budget(budget),
        source=None if quota is None else quota.source,
        kinds=row.kinds,
        used=row.used,
        waiting=row.waiting,
        closed=row.blocked,
        set_by=None if override is None else override.who,
        set_until=None if override is None else _moment(override.until_ms),
        differing=row.differing,
        paused=row.paused is not None,
    )


def _bucket_status(row: BucketRow) -> BucketStatus:
    from jobpool.operations.quotas import free  # noqa: PLC0415 - rare

    return BucketStatus(
        value=row.value,
        used=row.used,
        free=free(row),
        waiting=row.waiting,
        opens=_moment(row.opens_at_ms),
        reason=row.reason,
    )


def _tenant_status(row: TenantRow) -> TenantStatus:
    concurrency, rate, burst = _numbers(row.tenant)
    return TenantStatus(
        name=row.name,
        concurrency=concurrency,
        rate=rate,
        burst=burst,
        is_set=row.is_set,
        used=row.used,
        waiting=row.waiting,
        paused=row.paused is not None,
    )


def _numbers(rule: Quota | Tenant | None) -> tuple[int | None, str | None, int | None]:
    if rule is None or rule.rate is None:
        return None if rule is None else rule.concurrency, None, None
    burst = rule.rate.default_burst if rule.burst is None else rule.burst
    return rule.concurrency, str(rule.rate), burst


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
