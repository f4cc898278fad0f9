"""Buckets as they can be seen without a lock: what holds for them, and what is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jobpool.core.rules.quotas.allot import BucketState, LaneState, allot
from jobpool.core.rules.quotas.gcra import returned
from jobpool.core.rules.quotas.lanes import is_again
from jobpool.core.rules.quotas.rules import Rules, Use
from jobpool.store.records.jobs import HeldBack
from jobpool.store.statements.limits import counted_from, values_from
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Row, Session

_NOTES = 10_000
LANES = 256
"""Lanes that are looked at, to see what is due."""


class Seen(NamedTuple):
    """A bucket, and what it is the bucket of."""

    quota: str
    value: str
    state: BucketState


def buckets_from(
    session: Session, rules: Rules, rows: Iterable[Row], now_ms: int
) -> dict[int, Seen]:
    """Return the buckets of rows of `buckets_of`, with what is noted of them."""
    found = {}
    for bucket, quota, value, tat_us, block_until_ms, counts, used in rows:
        limit = rules.limit(quota, value)
        in_use = 0 if limit.concurrency is None else used
        state = BucketState(
            *(bucket, limit, in_use, tat_us, block_until_ms),
            *counted_from(limit, counts),
        )
        found[bucket] = Seen(quota, value, state)
    if not found:
        return found
    for bucket, permits, held_us, until_ms in session.rows(
        "notes_of_buckets", limit=_NOTES
    ):
        if bucket not in found:
            continue
        state = found[bucket].state
        if permits and (pace := state.limit.pace) is not None:
            now_us = 1000 * now_ms
            tat_us = returned(pace, state.tat_us, now_us, permits, held_us)
            state = state._replace(tat_us=tat_us)
        blocked_ms = max(until_ms, state.block_until_ms)
        found[bucket] = found[bucket]._replace(
            state=state._replace(block_until_ms=blocked_ms)
        )
    return found


def see(
    session: Session, rules: Rules, uses: Iterable[Use], now_ms: int
) -> dict[int, Seen]:
    """Return the buckets of uses; those that are not there yet as unused."""
    named = {use.bucket: use for use in uses}
    if not named:
        return {}
    rows = session.rows("buckets_by_id", ids=as_json(sorted(named)))
    found = buckets_from(session, rules, rows, now_ms)
    for use in named.values():
        if use.bucket not in found:
            limit = rules.limit(use.quota, use.value)
            state = BucketState(use.bucket, limit, 0, 0, 0)
            found[use.bucket] = Seen(use.quota, use.value, state)
    return found


def states_of(seen: Mapping[int, Seen]) -> dict[int, BucketState]:
    """Return the states of buckets."""
    return {bucket: one.state for bucket, one in seen.items()}


def held_in_lanes(
    session: Session, laned: Mapping[str, Sequence[str]], now_ms: int
) -> HeldBack | None:
    """See `Store.held_back`; *laned* are the laned kinds by pool."""
    asked = [
        {"pool": pool, "kinds": as_json(set(kinds)), "now_ms": now_ms, "limit": 1}
        for pool, kinds in laned.items()
    ]
    if not any(session.value("count_runnable", **given) for given in asked):
        return None
    ((has_lanes, has_buckets, _),) = session.rows("lanes_look")
    is_open = any(session.rows("open_lanes", **given) for given in asked)
    if has_lanes or has_buckets or is_open:
        return HeldBack(0.0)  # such as what was handed back meanwhile
    pairs = [(pool, kind) for pool, kinds in laned.items() for kind in kinds]
    opens_ms = session.value("lanes_opening", kinds=as_json(pairs), limit=LANES)
    return HeldBack(opens_ms and max(0.0, (opens_ms - now_ms) / 1000))


def count_in_lanes(
    session: Session, rules: Rules, pool: str, kinds: Sequence[str], by: tuple[int, int]
) -> int:
    """Count the jobs of laned kinds that have permits, among those that come first.

    Args:
        session: reads.
        rules: what is in force.
        pool: the pool.
        kinds: laned kinds of it.
        by: the most to count, and the store's clock.
    """
    limit, now_ms = by
    given = {"pool": pool, "kinds": as_json(set(kinds)), "now_ms": now_ms}
    rows = session.rows("open_lanes", **given, limit=LANES)
    known = {row[0] for row in rows}
    noted = session.rows("noted_lanes", **given, limit=LANES)
    rows += [row for row in noted if row[0] not in known]
    lanes = [
        LaneState(
            *(lane, pool, kind, rank, vtime),
            rules.uses(kind, tenant, values_from(text) or {}, again=is_again(lane)),
        )
        for lane, kind, tenant, text, rank, vtime in rows
    ]
    seen = see(session, rules, (use for lane in lanes for use in lane.uses), now_ms)
    allotted = allot(lanes, states_of(seen), limit, 0, now_ms)
    most = {one.lane: one.most for one in allotted if one.most}
    counted = session.rows("count_in_lanes", ids=as_json(most), limit=limit)
    return min(limit, sum(min(int(jobs), most[lane]) for lane, jobs in counted))
