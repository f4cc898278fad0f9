"""Which jobs a filter means, and looks at them in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from jobpool.core.jobs.job import FINISHED
from jobpool.store.memory.tables.rows import Row
from jobpool.store.records.operating import Filter
from jobpool.store.records.reading import GroupRow, Spot


def looked_at(
    newest_first: Iterable[Row],
    which: Filter,
    meant: Collection[int],
    *,
    limit: int,
    before: Spot | None,
    window: int,
) -> tuple[list[Row], Spot | None]:
    """Return what a look finds, and where it stops; as of `Store.look`.

    Args:
        newest_first: all jobs.
        which: the filter; it decides the order.
        meant: ids of the jobs that it means.
        limit: stop after so many of them.
        before: where the look before has stopped.
        window: stop after looking at so many.
    """
    states = set(which.states or ())
    is_among_some = (which.ids, which.key, which.flow) != (None, None, None)
    if states and states <= set(FINISHED) and not is_among_some:
        ended = (row for row in newest_first if row.state in states)
        spots = [(Spot(row.finished_at_ms or 0, row.id), row) for row in ended]
        spots.sort(key=_spot_of, reverse=True)
    else:
        spots = [(Spot(0, row.id), row) for row in newest_first]
    ahead = [one for one in spots if before is None or one[0] < before]
    looked = ahead[:window]
    found = [one for one in looked if one[1].id in meant]
    is_over = len(looked) == len(ahead) and len(found) <= limit
    last = found[limit - 1] if len(found) >= limit else looked[-1] if looked else None
    spot = None if is_over or last is None else last[0]
    return [row for _, row in found[:limit]], spot


def groups_of(meant: Iterable[Row]) -> list[GroupRow]:
    """Count jobs by kind, state and how they ended, most first."""
    counts = Counter(
        (
            row.new.kind,
            row.state.value,
            row.ended.reason,
            row.ended.outcome and row.ended.outcome.value,
            row.ended.error_class,
        )
        for row in meant
    )
    # As in a database, NULL comes first.
    most_first = sorted(
        counts.items(),
        key=lambda one: (-one[1], *((v is not None, v or "") for v in one[0])),
    )
    return [
        GroupRow(kind=k, state=s, reason=r, outcome=o, error_class=e, jobs=n)
        for (k, s, r, o, e), n in most_first
    ]


def is_meant(row: Row, which: Filter) -> bool:
    """Say whether a filter means a job, as far as its row can tell."""
    new = row.new
    if which.since_ms is not None:
        at_ms = row.created_at_ms if row.finished_at_ms is None else row.finished_at_ms
        if at_ms < which.since_ms:
            return False
    return (
        (which.states is None or row.state in which.states)
        and which.kind in {None, new.kind}
        and which.pool in {None, new.pool}
        and which.tenant in {None, new.tenant}
        and which.key in {None, new.key}
        and which.outcome in {None, row.ended.outcome}
        and _has_raised(row.ended.error_class, which.error_class)
        and (
            which.text is None
            or any(which.text in (one or "") for one in _searched(row))
        )
    )


def _searched(row: Row) -> tuple[str | None, ...]:
    return row.new.key, row.new.tenant, row.ended.reason


def _has_raised(error_class: str | None, meant: str | None) -> bool:
    if meant is None or error_class is None:
        return meant is None
    return f".{error_class}".endswith(f".{meant}")


def _spot_of(one: tuple[Spot, Row]) -> Spot:
    return one[0]
