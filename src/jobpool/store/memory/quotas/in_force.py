"""What is in force, compiled again whenever something of it has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from jobpool.core.formats import QUOTAS
from jobpool.core.rules.quotas.allot import BucketState
from jobpool.core.rules.quotas.definition import Limits, Need
from jobpool.core.rules.quotas.rules import (
    Pause,
    Published,
    Rules,
    TenantOverride,
    Use,
    rules,
)
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.tables.permits import Bucket


def in_force(database: MemoryDatabase, now_ms: int) -> Rules:
    """Return the rules, by which the lanes are arranged."""
    known = database.jobs.lanes.rules
    has_ended = known.until_ms is not None and known.until_ms <= now_ms
    if has_ended or known.version != database.limits_version:
        known = rules(
            _published(database),
            database.overrides.values(),
            (
                TenantOverride(tenant=one.tenant, who=one.who)
                for one in database.tenants.values()
            ),
            (
                Pause(
                    what=one.what, name=one.name, until_ms=one.until_ms, note=one.note
                )
                for one in database.pauses.values()
            ),
            now_ms=now_ms,
            version=database.limits_version,
        )
        database.jobs.arrange_lanes(known)
    return known


def is_granted(database: MemoryDatabase) -> bool:
    """Say whether older code, which knows no quotas, cannot lease any more."""
    return database.least_format >= QUOTAS


def states_of(
    database: MemoryDatabase, known: Rules, uses: Iterable[Use]
) -> dict[int, BucketState]:
    """Return the buckets of some uses, by id."""
    return {
        use.bucket: state_of(database, known, use.bucket, use.quota, use.value)
        for use in uses
    }


def state_of(
    database: MemoryDatabase, known: Rules, bucket: int, quota: str, value: str
) -> BucketState:
    """Return a bucket as it is now."""
    row = database.buckets.get(bucket) or Bucket(quota, value)
    return BucketState(
        bucket,
        known.limit(quota, value),
        database.permits.in_use(bucket),
        row.tat_us,
        row.block_until_ms,
        row.breaker,
        row.window,
    )


def _published(database: MemoryDatabase) -> Iterable[Published]:
    needs: defaultdict[str, dict[str, tuple[Need, ...]]] = defaultdict(dict)
    for (kind, run_id), record in database.kinds.items():
        if record.needs:
            needs[run_id][kind] = record.needs
    return [
        Published(
            run_id=run.id,
            label=run.label,
            app_since_ms=database.app_since.get(run.id, 0),
            limits=run.limits,
            needs=needs.get(run.id, {}),
        )
        for run in database.runs.values()
        if run.ended_at_ms is None and (run.limits != Limits() or run.id in needs)
    ]
