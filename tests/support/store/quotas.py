"""What tests of quotas in a store share: short ways to publish, enqueue and lease."""

from jobpool.core.rules.quotas.definition import Limits, Need, Quota, Tenant, own_cap
from jobpool.core.rules.quotas.lanes import lane_id
from jobpool.core.rules.quotas.rate import parse_rate
from support.store.storing import begin_run, kind_record, new_job

ENGINES = ["memory", "sqlite", "postgres"]
"""The stores that have quotas."""
KIND, OTHER = "shop.thumbnail", "shop.resize"
POOL_OF = {KIND: "cpu", OTHER: "cpu", "shop.fetch": "io"}


def quota(name="stripe", **numbers):
    """Return a quota; its rate may be a text."""
    rate = numbers.pop("rate", None)
    return Quota(name=name, rate=rate and parse_rate(rate), **numbers)


def tenant(name="*", **numbers):
    rate = numbers.pop("rate", None)
    return Tenant(name=name, rate=rate and parse_rate(rate), **numbers)


def publish(
    store,
    *quotas,
    needs=None,
    tenants=(),
    run_id="run-1",
    caps=None,
    more=None,
    **facts,
):
    """Have a run publish quotas, which one kind needs unless it is said which do.

    Args:
        store: where.
        quotas: what its application defines.
        needs: by kind: names of quotas, or needs of them.
        tenants: rules of tenants.
        run_id: the run; it may have begun already.
        caps: kinds' own caps.
        more: what else it publishes.
        facts: of the run.
    """
    if needs is None:
        needs = {KIND: [one.name for one in quotas if not one.host_only]}
    needs = {kind: list(names) for kind, names in needs.items()}
    quotas = list(quotas)
    for kind, concurrency in (caps or {}).items():
        cap, need = own_cap(kind, concurrency)
        quotas.append(cap)
        needs.setdefault(kind, []).append(need)
    kinds = [
        kind_record(
            kind,
            POOL_OF[kind],
            needs=tuple(Need(one) if isinstance(one, str) else one for one in names),
        )
        for kind, names in needs.items()
    ]
    limits = Limits(quotas=tuple(quotas), tenants=tuple(tenants), **(more or {}))
    begin_run(store, run_id, kinds, limits=limits, **facts)


def stamped(kind=KIND, *, values=None, **options):
    """Return a job as a client makes it that knows the quotas of its kind."""
    values = values or {}
    pool = POOL_OF[kind]
    lane = lane_id(
        pool, kind, options.get("priority", 0), options.get("tenant"), values
    )
    return new_job(kind, pool, quota_values=values or None, lane=lane, **options)


def enqueue(store, count=1, kind=KIND, **options):
    """Store jobs as such a client does, and return their ids."""
    made = store.enqueue([stamped(kind, **options) for _ in range(count)])
    return [one.id for one in made]


def ids(leases):
    return [one.id for one in leases]
