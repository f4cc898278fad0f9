"""Quotas: their numbers, their use, who waits; and one of them by bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.config.layers import nearest
from jobpool.core.rules.quotas.breaker import BreakerState
from jobpool.core.rules.quotas.budget import counted_like
from jobpool.core.rules.quotas.definition import Quota
from jobpool.dashboard.asked import Asked, NotKnown
from jobpool.dashboard.reading import Unknown
from jobpool.operations.queue import Pause, Resume
from jobpool.operations.quotas import ResetQuota, SetQuota, free
from jobpool.operations.redaction import Redactor
from jobpool.store.protocol import Store
from jobpool.store.records.quotas import BucketRow, QuotaRow
from jobpool.store.records.runs import KindRecord
from jobpool.words.quotas import (
    facts,
    free_of,
    named,
    numbers_words,
    state_words,
)

_BUCKETS_MAX = 100
_SERVICES = {
    BreakerState.OPEN: ("service down", "bad"),
    BreakerState.PROBING: ("probing its service", "warn"),
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A quota in the list."""

    row: QuotaRow
    title: str
    limits: str
    cap: int | None
    """Of one bucket; None: it has none, or several."""
    free: int | None
    """Permits that can be had now, of a quota with one bucket."""
    state: str
    """Why there is no permit now, or that there is one."""
    opens_ms: int | None
    """When there may be one at the earliest; None: nobody can know, or there is one."""
    label: str
    """The state in a word or two."""
    tone: str


class BucketLine(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket in the table."""

    row: BucketRow
    free: int | None
    tone: str


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """What one quota's page shows."""

    line: Line
    facts: tuple[tuple[str, str], ...]
    per: str | None
    """What it counts by; None: it has one bucket."""
    buckets: tuple[BucketLine, ...]


async def show_list(asked: Asked) -> Response:
    """Answer with the list."""
    rows = await _rows(asked)
    listed = rows if isinstance(rows, Unknown) else lines_of(rows, _now_ms())
    return asked.page("quotas.html", listed=listed)


async def show_one(asked: Asked) -> Response:
    """Answer with one quota.

    Raises:
        NotKnown: there is none of this name.
    """
    name = asked.part("quota")
    rows = await _rows(asked)
    seen: Unknown | QuotaView
    if isinstance(rows, Unknown):
        seen = rows
    else:
        known = {row.name: row for row in rows}
        if name not in known:
            near = nearest(name, known)
            raise NotKnown(f"there is no quota {name[:200]!r}; {near}")
        seen = await _view(asked, name, known)
    return asked.page(
        "quota.html",
        name=name,
        seen=seen,
        most=_BUCKETS_MAX,
        actions={
            "set": SetQuota,
            "reset": ResetQuota,
            "pause": Pause,
            "resume": Resume,
        },
    )


async def _rows(asked: Asked) -> list[QuotaRow] | Unknown:
    return await asked.served.live.shared("quotas", lambda store: store.quotas())


async def _view(
    asked: Asked, name: str, rows: Mapping[str, QuotaRow]
) -> QuotaView | Unknown:
    row = rows[name]
    like = rows.get(counted_like(name)) if row.quota is None else row
    counted = None if like is None else like.quota

    def read(store: Store) -> tuple[list[KindRecord], list[BucketRow]]:
        kinds = store.kinds()
        buckets = store.buckets(name, _BUCKETS_MAX)
        return kinds, Redactor(store, kinds).buckets(buckets, counted)

    found = await asked.served.live.shared(f"buckets of {name}", read)
    if isinstance(found, Unknown):
        return found
    kinds, buckets = found
    return view_of(row, counted, kinds, buckets, _now_ms())


def lines_of(rows: Iterable[QuotaRow], now_ms: int) -> list[Line]:
    """Return the list: those first for which most jobs wait."""
    ranked = sorted(rows, key=lambda row: (-row.waiting, row.name))
    return [_line(row, now_ms) for row in ranked]


def view_of(
    row: QuotaRow,
    counted: Quota | None,
    kinds: Iterable[KindRecord],
    buckets: Iterable[BucketRow],
    now_ms: int,
) -> QuotaView:
    """Return what one quota's page shows.

    Args:
        row: the quota.
        counted: the one that says what its buckets count by; None: nobody knows.
        kinds: all of them.
        buckets: as they may be shown.
        now_ms: the store's clock, or one that is near it.
    """
    costs: Mapping[str, int] = {
        record.kind: need.cost
        for record in kinds
        for need in record.needs
        if need.quota == row.name
    }
    return QuotaView(
        line=_line(row, now_ms),
        facts=tuple(facts(row, costs, now_ms)),
        per=None if counted is None else counted.per,
        buckets=tuple(map(_bucket, buckets)),
    )


def _now_ms() -> int:
    return SystemClock().utc_ms()


def _line(row: QuotaRow, now_ms: int) -> Line:
    quota, bucket = row.quota, row.bucket
    has_one = quota is not None and quota.per is None and not quota.host_only
    label, tone = _label(row)
    reason = None if bucket is None or row.paused is not None else bucket.reason
    return Line(
        row=row,
        title=named(row.name, "").removeprefix("quota "),
        limits=numbers_words(quota) if quota is not None else "",
        cap=quota.concurrency if quota is not None and has_one else None,
        free=free_of(row),
        state=reason or state_words(row, now_ms),
        opens_ms=bucket.opens_at_ms if bucket is not None and reason else None,
        label=label,
        tone=tone,
    )


def _label(row: QuotaRow) -> tuple[str, str]:
    """Return a quota's state in a word or two, and its tone."""
    if row.paused is not None:
        return "paused", "warn"
    if row.bucket is not None and (label := _of_service(row.bucket)) is not None:
        return label
    return ("closed", "warn") if row.blocked else ("open", "")


def _of_service(bucket: BucketRow) -> tuple[str, str] | None:
    """Return what a breaker says of its service; None: all is well, or it has none."""
    if bucket.service is None:
        return None
    return _SERVICES.get(bucket.service.state)


def _bucket(row: BucketRow) -> BucketLine:
    service = _of_service(row)
    return BucketLine(
        row=row,
        free=free(row),
        tone=service[1] if service else ("warn" if row.reason is not None else ""),
    )
