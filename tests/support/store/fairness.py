"""What tests of fair and aged pools share: who has begun, and whether that was fair."""

from collections import Counter

from jobpool.core.rules.quotas.definition import Limits, Need, Tenant
from jobpool.core.rules.quotas.shares import KindRule, PoolRule
from support.store.quotas import KIND, OTHER, POOL_OF
from support.store.storing import begin_run, kind_record, new_job, succeeded

STARTS_MIN = 20
"""Over so many starts, nobody may get over twice another's."""
CALLS_MAX = 20


def publish_pool(
    store,
    *quotas,
    fair="tenant",
    aging_s=None,
    tenants=(),
    kinds=None,
    needs=None,
    run_id="run-1",
    **facts,
):
    """Have a run publish that the pool of two kinds is fair or aged.

    Args:
        store: where.
        quotas: what its application defines.
        fair: who has shares.
        aging_s: in which time jobs rise by one priority.
        tenants: rules of tenants; a number is a weight: ``{"acme": 3}``.
        kinds: their weights, by kind.
        needs: names of quotas, by kind.
        run_id: the run; it may have begun already.
        facts: of the run.
    """
    if isinstance(tenants, dict):
        tenants = [Tenant(name=name, weight=weight) for name, weight in tenants.items()]
    limits = Limits(
        quotas=quotas,
        tenants=tuple(tenants),
        pools=(PoolRule(name="cpu", fair=fair, aging_s=aging_s),),
        kinds=tuple(KindRule(kind=kind, weight=w) for kind, w in (kinds or {}).items()),
    )
    records = [
        kind_record(
            kind, POOL_OF[kind], needs=tuple(map(Need, (needs or {}).get(kind, ())))
        )
        for kind in (KIND, OTHER)
    ]
    begin_run(store, run_id, records, limits=limits, **facts)


def enqueue_for(store, who, count=1, kind=KIND, **options):
    """Store jobs of a tenant, as one that knows nothing of lanes; return their ids."""
    tenant = who or None
    made = store.enqueue([new_job(kind, tenant=tenant, **options)] * count)
    return [one.id for one in made]


def begin(store, want, run_id="run-1", kinds=(KIND, OTHER)):
    """Lease until there are as many as wanted, or the store has no more."""
    store.renew(run_id, 60.0, anew=True)
    found, calls = [], 0
    while len(found) < want:
        batch = store.lease(run_id, {"cpu": want - len(found)}, {"cpu": kinds})
        found += batch.leases
        calls += 1
        assert calls < CALLS_MAX, "the store always says that there is more"
        if batch.next_due_in_s != 0:
            break
    return found


def run_some(store, want, **how):
    """Lease as many and have them succeed; return them."""
    found = begin(store, want, **how)
    if found:
        store.settle([succeeded(one) for one in found])
    return found


def of_whom(leases):
    """Count leases by tenant; those without one are of ``""``."""
    return Counter(one.tenant or "" for one in leases)


def check_shares(claims, names):
    """Check that of claims, during which all of these waited, all got alike.

    That is the promise: nobody's starts are over twice another's, in any row of claims
    with at least 20 starts.

    Args:
        claims: starts of each, in order: counters.
        names: who waited.
    """
    totals = [Counter()]
    for starts in claims:
        totals.append(totals[-1] + starts)
    for begin_at, before in enumerate(totals):
        for after in totals[begin_at + 1 :]:
            got = {name: after[name] - before[name] for name in names}
            if sum(got.values()) >= STARTS_MIN:
                assert max(got.values()) <= 2 * min(got.values()), got
