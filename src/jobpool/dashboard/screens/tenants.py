"""Tenants: what each may use, what it does use, and whose jobs wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.core.rules.quotas.rules import EVERYBODY_ELSE
from jobpool.dashboard.asked import Asked
from jobpool.dashboard.reading import Unknown
from jobpool.operations.queue import Pause, Resume
from jobpool.operations.quotas import RemoveTenant, SetTenant
from jobpool.store.records.quotas import TenantRow
from jobpool.words.pauses import paused_words
from jobpool.words.quotas import numbers_words, tenant_origin

_DEPTHS_MAX = 500
"""Tenants and states that are counted, the most first."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant in the list."""

    row: TenantRow
    limits: str
    """Its rule; "": as everybody else."""
    cap: int | None
    weight: float | None
    origin: str | None
    jobs: Mapping[str, int]
    """Its jobs that have not ended, by state; empty as well: not counted."""
    paused: str

    @property
    def unfinished(self) -> int:
        """All of its jobs that have not ended."""
        return sum(self.jobs.values())


async def show_list(asked: Asked) -> Response:
    """Answer with the page."""
    rows, depths = await _read(asked)
    counted: Sequence[tuple[str, str, int]] = ()
    if not isinstance(depths, Unknown):
        counted = depths
    listed: Unknown | list[Line]
    if isinstance(rows, Unknown):
        listed = rows
    else:
        listed = lines_of(rows, counted, SystemClock().utc_ms())
    return asked.page(
        "tenants.html",
        listed=listed,
        depths=depths,
        everybody=EVERYBODY_ELSE,
        actions={"set": SetTenant},
    )


async def show_one(asked: Asked) -> Response:
    """Answer with one tenant; one that nobody has heard of can be given a rule."""
    name = asked.part("tenant")
    rows, depths = await _read(asked)
    is_known = True
    line: Unknown | Line
    if isinstance(rows, Unknown):
        line = rows
    else:
        now_ms = SystemClock().utc_ms()
        own = [row for row in rows if row.name == name]
        counted = () if isinstance(depths, Unknown) else depths
        is_all = not isinstance(depths, Unknown) and len(depths) < _DEPTHS_MAX
        is_known = bool(own) or any(one[0] == name for one in counted) or not is_all
        own = own or [TenantRow(name=name, tenant=None)]
        (line,) = lines_of(own, [one for one in counted if one[0] == name], now_ms)
    return asked.page(
        "tenant.html",
        status_code=HTTPStatus.OK if is_known else HTTPStatus.NOT_FOUND,
        is_known=is_known,
        name=name,
        line=line,
        depths=depths,
        everybody=EVERYBODY_ELSE,
        actions={
            "set": SetTenant,
            "remove": RemoveTenant,
            "pause": Pause,
            "resume": Resume,
        },
    )


def lines_of(
    rows: Iterable[TenantRow], depths: Iterable[tuple[str, str, int]], now_ms: int
) -> list[Line]:
    """Return the list: everybody else first, then those with most unfinished jobs.

    Args:
        rows: those that have rules or are paused.
        depths: tenants, states, and how many jobs.
        now_ms: the store's clock, or one that is near it.
    """
    jobs: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for tenant, state, count in depths:
        jobs[tenant][state] += count
    known = {row.name: row for row in rows}
    for name in jobs:
        known.setdefault(name, TenantRow(name=name, tenant=None))
    lines = [_line(row, jobs[name], now_ms) for name, row in known.items()]
    return sorted(
        lines,
        key=lambda one: (
            one.row.name != EVERYBODY_ELSE,
            -one.row.waiting,
            -one.unfinished,
            one.row.name,
        ),
    )


def _line(row: TenantRow, jobs: Mapping[str, int], now_ms: int) -> Line:
    rule = row.tenant
    return Line(
        row=row,
        limits="" if rule is None else numbers_words(rule),
        cap=None if rule is None else rule.concurrency,
        weight=None if rule is None else rule.weight,
        origin=tenant_origin(row, now_ms),
        jobs=jobs,
        paused="" if row.paused is None else paused_words(row.paused, now_ms),
    )


async def _read(
    asked: Asked,
) -> tuple[list[TenantRow] | Unknown, list[tuple[str, str, int]] | Unknown]:
    live = asked.served.live
    return (
        await live.shared("tenants", lambda store: store.tenants()),
        await live.shared(
            "depths of tenants", lambda store: store.tenant_depths(_DEPTHS_MAX)
        ),
    )
