"""How many supervisors a pool needs, and how long what is due in it takes.

What counts is what a supervisor could do: what runs, and what is due and held back by
nothing (`Store.scaling`). More of them would not help a quota, a pause or a breaker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from jobpool.core.rules.run_report import ReportRow
from jobpool.store.protocol import Store
from jobpool.store.records.reading import ScalingRow


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """What one pool needs."""

    pool: str
    wanted: int
    """Supervisors; 0: it has nothing to do."""
    running: int
    due: int
    slots: int
    """Of one supervisor."""
    time_to_drain_s: float | None
    """How long what is due takes, at the rate at which attempts have ended in the last
    minute; None: none has ended."""


def scaling_of(store: Store) -> list[Scaling]:
    """Read what each pool needs.

    Raises:
        StoreError: the store cannot be read.
    """
    pools = {record.kind: record.pool for record in store.kinds()}
    rates = _rates(store.run_reports(), pools)
    return [_scaling(row, rates[row.pool]) for row in store.scaling()]


def _scaling(row: ScalingRow, per_s: float) -> Scaling:
    drain_s = 0.0 if not row.due else row.due / per_s if per_s > 0 else None
    return Scaling(
        pool=row.pool,
        wanted=row.wanted_replicas,
        running=row.running,
        due=row.due,
        slots=row.slots,
        time_to_drain_s=drain_s,
    )


def _rates(
    reports: Sequence[ReportRow], pools: Mapping[str, str]
) -> defaultdict[str, float]:
    """Return how many attempts end a second, by pool, over all supervisors."""
    rates: defaultdict[str, float] = defaultdict(float)
    for row in reports:
        for kind, told in row.report.kinds.items():
            if kind in pools:
                rates[pools[kind]] += told.ends_per_s
    return rates
