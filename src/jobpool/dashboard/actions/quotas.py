"""What people do to quotas and to tenants' rules."""

from __future__ import annotations

from starlette.responses import Response

from jobpool.core.rules.quotas.definition import Tenant, parse_weight
from jobpool.dashboard.actions.fields import needed, rate, span_s, text, whole
from jobpool.dashboard.asked import Asked
from jobpool.errors import UsageError
from jobpool.operations.quotas import RemoveTenant, ResetQuota, SetQuota, SetTenant


async def set_quota(asked: Asked) -> Response:
    """Give a quota other numbers; what is empty stays as it is."""
    form = await asked.form()
    name = asked.part("quota")
    action = SetQuota(
        quota=name,
        rate=rate(form, "rate"),
        burst=whole(form, "burst"),
        concurrency=whole(form, "concurrency"),
        for_s=span_s(form, "for"),
        note=text(form, "note"),
    )
    if action.rate is None and action.burst is None and action.concurrency is None:
        raise UsageError(
            "nothing was set: fill in at least one of rate, burst and concurrency"
        )
    await asked.operate(action)
    return asked.go("quota", quota=name)


async def reset_quota(asked: Asked) -> Response:
    """Undo what was set, open what is blocked, close a breaker, fill up the rate."""
    form = await asked.form()
    name = asked.part("quota")
    await asked.operate(ResetQuota(quota=name, note=text(form, "note")))
    return asked.go("quota", quota=name)


async def set_tenant(asked: Asked) -> Response:
    """Give a tenant a rule of its own; what is empty is as ``*`` has it."""
    form = await asked.form()
    weight = text(form, "weight")
    tenant = Tenant(
        name=needed(form, "tenant"),
        concurrency=whole(form, "concurrency"),
        rate=rate(form, "rate"),
        burst=whole(form, "burst"),
        weight=None if weight is None else parse_weight(_number(weight)),
    )
    if tenant == Tenant(name=tenant.name):
        raise UsageError(
            "nothing was set: fill in at least one of concurrency, rate, burst and "
            "weight"
        )
    await asked.operate(SetTenant(tenant=tenant, note=text(form, "note")))
    return asked.go("tenant", tenant=tenant.name)


async def remove_tenant(asked: Asked) -> Response:
    """Undo what was set for a tenant."""
    form = await asked.form()
    action = RemoveTenant(tenant=needed(form, "tenant"), note=text(form, "note"))
    await asked.operate(action)
    return asked.go("tenants")


def _number(given: str) -> float | str:
    try:
        return float(given)
    except ValueError:
        return given
