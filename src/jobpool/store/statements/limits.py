"""Quotas as they are stored: what runs publish, and what operators set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from jobpool.core.rules.quotas.allot import BucketState
from jobpool.core.rules.quotas.breaker import Breaker
from jobpool.core.rules.quotas.definition import Limits, Need, Tenant
from jobpool.core.rules.quotas.rate import Rate
from jobpool.core.rules.quotas.rules import (
    Limit,
    Override,
    Published,
    TenantOverride,
)
from jobpool.core.rules.quotas.window import Window
from jobpool.store.records.runs import label_of
from jobpool.store.statements.integrity import QUOTA, TENANT, is_valid
from jobpool.store.statements.session import Row

T = TypeVar("T")


def published_from(limits: Iterable[Row], needs: Iterable[Row]) -> list[Published]:
    """Return what runs have published; what cannot be read is nothing."""
    of_run: dict[str, dict[str, tuple[Need, ...]]] = {}
    for run_id, kind, names, text in needs:
        found = decoded(text, tuple[Need, ...])
        if found:
            of_kind = of_run.setdefault(run_id, {})
            for name in (kind, *(decoded(names, tuple[str, ...]) or ())):
                of_kind[name] = found
    return [
        Published(
            run_id=run_id,
            label=label_of(version, host, pid),
            app_since_ms=since_ms,
            limits=decoded(text, Limits) or Limits(),
            needs=of_run.get(run_id, {}),
        )
        for run_id, version, host, pid, since_ms, _, text in limits
        if text is not None or run_id in of_run
    ]


def overrides_from(rows: Iterable[Row]) -> list[Override]:
    """Return what is set for quotas, in the table's order."""
    return [
        Override(
            quota=one["name"],
            rate=_rate(one),
            **{
                name: one[name]
                for name in ("burst", "concurrency", "until_ms", "who", "note")
            },
        )
        for one in _readable(QUOTA, rows)
    ]


def tenants_from(rows: Iterable[Row]) -> list[TenantOverride]:
    """Return what is set for tenants, in the table's order."""
    return [
        TenantOverride(
            tenant=Tenant(
                name=one["name"],
                concurrency=one["concurrency"],
                rate=_rate(one),
                burst=one["burst"],
                weight=one["weight"],
            ),
            who=one["who"],
        )
        for one in _readable(TENANT, rows)
    ]


def rate_columns(rate: Rate | None) -> dict[str, float | None]:
    """Return a rate as it is stored."""
    return {
        "rate_permits": rate.permits if rate else None,
        "rate_per_s": rate.per_s if rate else None,
    }


def counted_from(limit: Limit, text: object) -> tuple[Breaker, Window]:
    """Return what was counted in a bucket, as stored; nothing, if its rule is gone.

    Args:
        limit: what holds for the bucket.
        text: JSON, as `encoded_counts` makes it.
    """
    if limit.budget is not None:
        return Breaker(), decoded(text, Window) or Window()
    if limit.breaker is not None:
        return decoded(text, Breaker) or Breaker(), Window()
    return Breaker(), Window()


def encoded_counts(state: BucketState) -> str | None:
    """Return what was counted in a bucket, to be stored."""
    counts = state.breaker if state.limit.budget is None else state.window
    if counts in {Breaker(), Window()}:
        return None
    return msgspec.json.encode(counts).decode()


def encoded_needs(needs: Sequence[Need]) -> str | None:
    """Return a kind's needs as they are stored."""
    return msgspec.json.encode(needs).decode() if needs else None


def encoded_limits(limits: Limits) -> str | None:
    """Return a run's definitions as they are stored."""
    return None if limits == Limits() else msgspec.json.encode(limits).decode()


def _rate(columns: Mapping[str, Any]) -> Rate | None:
    permits, per_s = columns["rate_permits"], columns["rate_per_s"]
    return Rate(permits, per_s) if permits and per_s else None


def _readable(columns: Mapping[str, Any], rows: Iterable[Row]) -> list[dict[str, Any]]:
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    return [one for one in named if is_valid(one, columns)]


def decoded(text: object, kind: type[T]) -> T | None:
    """Return what a text of JSON holds; None: nothing that can be read."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def values_from(text: object) -> dict[str, str] | None:
    """Return what a job or a lane counts by, as stored; None: it cannot be read."""
    return decoded(text, dict[str, str])


def encoded_values(values: Mapping[str, str]) -> str:
    """Return what a job counts by, as it is stored."""
    return msgspec.json.encode(dict(values), order="sorted").decode()
