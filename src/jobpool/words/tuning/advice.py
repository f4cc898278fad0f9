"""What would fit the kinds of a store, and what that would change. Pure.

Rules for one limit are in `core.rules.usage.tuning`. Here they are put together: by
kind, and by pool, whose slots reserve what the largest of its kinds may use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobpool.core.config.settings import PoolSettings
from jobpool.core.rules.run_report import ReportRow
from jobpool.core.rules.usage.sketch import Measure
from jobpool.core.rules.usage.tuning import (
    ATTEMPTS_LEAST,
    Proposal,
    Verdict,
    correlation,
    memory_proposal,
    recycling,
    timeout_proposal,
)
from jobpool.store.records.reading import SampleRow, SketchRow, merged
from jobpool.store.records.runs import KindRecord

Place = tuple[str, str]
"""A kind and its pool."""
_FOLLOWS = 0.7
"""The rank correlation from which memory is said to follow the arguments' size."""
_APART = 1.3
"""And the large ones need so many times what the small ones do."""
_THIRDS = 3


class ByPayload(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a kind that follows the size of its arguments, by thirds of that."""

    correlation: float
    small_p99_bytes: float
    large_p99_bytes: float
    large_from_bytes: int
    """Arguments of the upper third take at least this, as stored."""


class KindAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one kind in one pool, and what is proposed."""

    kind: str
    pool: str
    memory: Proposal
    time: Proposal
    by_payload: ByPayload | None = None
    leak_bytes: int = 0
    """What each of its jobs leaves behind in its child; 0: no leak is known."""

    @property
    def is_known(self) -> bool:
        """Enough attempts to propose anything."""
        return any(
            limit.verdict is not Verdict.UNKNOWN for limit in (self.memory, self.time)
        )


class PoolAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What the proposals come to for one pool."""

    pool: str
    slots: int
    reserved_bytes: float
    """What its slots may use together, at the present limits of its largest kind."""
    proposed_bytes: float
    """The same at the proposed ones."""
    room_for: int
    """More slots that what is freed is enough for."""
    recycle: int
    """After how many jobs a child is replaced."""
    recycle_proposed: int | None = None
    """Sooner, for the sake of a kind that leaks; None: it may stay."""
    leaking: str = ""
    """That kind."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    kinds: Sequence[KindAdvice]
    pools: Sequence[PoolAdvice]


def advice_of(
    sketches: Iterable[SketchRow],
    *,
    samples: Iterable[SampleRow],
    kinds: Iterable[KindRecord],
    reports: Iterable[ReportRow],
    pools: Iterable[PoolSettings],
) -> Advice:
    """Return what would fit.

    Args:
        sketches: what all attempts have used.
        samples: the newest successes, with the size of their arguments.
        kinds: with their present limits.
        reports: what supervisors tell of themselves.
        pools: as configured here.
    """
    published = {one.kind: one for one in kinds}
    counts = merged(sketches)
    sampled: defaultdict[Place, list[SampleRow]] = defaultdict(list)
    for sample in samples:
        sampled[sample.kind, sample.pool].append(sample)
    leaks: dict[str, int] = {}
    for row in reports:
        for kind, told in row.report.kinds.items():
            leaks[kind] = max(leaks.get(kind, 0), told.grown_bytes)
    found = []
    for kind, pool in sorted({place[:2] for place in counts}):
        record = published.get(kind)
        found.append(
            KindAdvice(
                kind=kind,
                pool=pool,
                memory=memory_proposal(
                    counts[kind, pool, Measure.MEMORY],
                    record.memory_bytes if record else None,
                ),
                time=timeout_proposal(
                    counts[kind, pool, Measure.DURATION],
                    record.timeout_s if record else None,
                ),
                by_payload=_by_payload(sampled[kind, pool]),
                leak_bytes=leaks.get(kind, 0),
            )
        )
    return Advice(
        kinds=found,
        pools=[_pool(one, found, published) for one in pools],
    )


def _pool(
    settings: PoolSettings,
    kinds: Sequence[KindAdvice],
    published: Mapping[str, KindRecord],
) -> PoolAdvice:
    """Return what the proposals for its kinds come to for a pool."""
    here = [one for one in kinds if one.pool == settings.name]
    proposed = {one.kind: one.memory.next for one in here}
    now, then = [], []
    for record in published.values():
        if record.pool == settings.name:
            now.append(float(record.memory_bytes))
            then.append(proposed.get(record.kind) or float(record.memory_bytes))
    each_now, each_then = max(now, default=0.0), max(then, default=0.0)
    freed = settings.size_max * (each_now - each_then)
    leaking, recycle = "", settings.recycle_jobs
    for one in here:
        limit = one.memory.next
        if not one.leak_bytes or limit is None:
            continue
        jobs = recycling(one.leak_bytes, limit - (one.memory.p50 or 0.0))
        if jobs < recycle:
            leaking, recycle = one.kind, jobs
    return PoolAdvice(
        pool=settings.name,
        slots=settings.size_max,
        reserved_bytes=settings.size_max * each_now,
        proposed_bytes=settings.size_max * each_then,
        room_for=int(freed // each_then) if each_then and freed > 0 else 0,
        recycle=settings.recycle_jobs,
        recycle_proposed=recycle if leaking else None,
        leaking=leaking,
    )


def _by_payload(samples: Sequence[SampleRow]) -> ByPayload | None:
    """Return how memory follows the size of arguments; None: it does not."""
    if len(samples) < ATTEMPTS_LEAST:
        return None
    pairs = [(float(one.payload_bytes), float(one.peak_rss_bytes)) for one in samples]
    follows = correlation(pairs)
    if follows < _FOLLOWS:
        return None
    by_size = sorted(pairs)
    third = len(by_size) // _THIRDS
    small, large = by_size[:third], by_size[-third:]
    small_p99, large_p99 = _p99(small), _p99(large)
    if large_p99 < _APART * small_p99:
        return None
    return ByPayload(
        correlation=follows,
        small_p99_bytes=small_p99,
        large_p99_bytes=large_p99,
        large_from_bytes=round(large[0][0]),
    )


def _p99(pairs: Sequence[tuple[float, float]]) -> float:
    return sorted(peak for _, peak in pairs)[-1 - len(pairs) // 100]
