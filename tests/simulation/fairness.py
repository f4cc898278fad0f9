"""What the store's leases do to shares and ages, as records of each claim.

Each is computed in the transaction that leases, from the store's rows and from what is
in force (`inforce`): whose jobs were begun, and whose were left that waited for nothing
but a slot. `support.store.shares` says what is wrong with that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.rules.quotas.shares import PoolRule
from jobpool.store.memory.tables.ordered_set import id_of
from jobpool.store.memory.tables.rows import Row
from simulation.inforce import InForce
from support.store.history import Dealt, Overtook, Record, TurnBack

if TYPE_CHECKING:
    from simulation.world import World


def dealt(
    world: World, kinds: Mapping[str, Sequence[str]], leases: Sequence[Lease]
) -> Iterator[Record]:
    """Yield what a claim means for the fair and aged pools that it has leased from.

    Args:
        world: whose store.
        kinds: which kinds of each pool it was for.
        leases: what it has got.
    """
    if not world.quotas.has_any:
        return
    database, now_s = world.database, world.kernel.now_s
    rules = InForce(database, world.store_clock(world.hosts[0]).utc_ms())
    for name, rule in rules.pools.items():
        in_turn = [one for one in leases if one.pool == name and not one.suspect]
        for one in leases:
            if one.pool == name and one.suspect and rule.fair:
                who = rules.who(rule, one.kind, one.tenant)
                yield TurnBack(at_s=now_s, pool=name, priority=one.priority, who=who)
        if not in_turn:
            continue
        begun = [database.jobs[one.id] for one in in_turn]
        left, held = _left(world, rules, name, kinds.get(name, ()))
        world.sometimes["a fair or aged pool was leased from"] += 1
        yield from _overtaken(world, rule, begun, left, held)
        if rule.fair:
            yield from _starts(world, rules, rule, begun, left)


def given_back(world: World, one: Settlement, before: Row | None) -> Iterator[Record]:
    """Yield that a start was given back, if it was."""
    if not one.unbegun or before is None or not world.quotas.has_any:
        return
    rules = InForce(world.database, world.store_clock(world.hosts[0]).utc_ms())
    new, rule = before.new, rules.pools.get(before.new.pool)
    if rule is not None and rule.fair:
        world.sometimes["a turn was given back"] += 1
        yield TurnBack(
            at_s=world.kernel.now_s,
            pool=new.pool,
            priority=new.priority,
            who=rules.who(rule, new.kind, new.tenant),
        )


def _left(
    world: World, rules: InForce, pool: str, kinds: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """Return runnable jobs that nothing holds back, and those that something may."""
    database = world.database
    now_ms = world.store_clock(world.hosts[0]).utc_ms()
    paused = database.paused(now_ms)
    free, held = [], []
    for kind in kinds:
        if ("kind", kind) in paused or ("pool", pool) in paused:
            continue
        for rank in database.jobs.runnable.get((pool, kind), ()):
            row = database.jobs[id_of(rank)]
            if row.is_late(now_ms) or row.id in database.suspects:
                continue
            (held if any(rules.needed(row)) else free).append(row)
    return free, held


def _starts(
    world: World, rules: InForce, rule: PoolRule, begun: list[Row], left: list[Row]
) -> Iterator[Dealt]:
    """Yield whose turns were taken, by priority."""
    for priority in sorted({row.new.priority for row in begun}):
        starts = Counter(
            rules.who(rule, row.new.kind, row.new.tenant)
            for row in begun
            if row.new.priority == priority
        )
        waits = {
            rules.who(rule, row.new.kind, row.new.tenant): rules.weight(rule, row)
            for row in left
            if row.new.priority == priority
        }
        if len(waits) > 1:
            world.sometimes["two shares waited"] += 1
        yield Dealt(
            at_s=world.kernel.now_s,
            pool=rule.name,
            priority=priority,
            starts=tuple(sorted(starts.items())),
            waits=tuple(sorted(waits.items())),
        )


def _overtaken(
    world: World, rule: PoolRule, begun: list[Row], left: list[Row], held: list[Row]
) -> Iterator[Overtook]:
    """Yield that a job was left which was to go before one that was begun."""
    turns = {row.id: _turn(rule, row) for row in (*begun, *left, *held)}
    first = min(left, key=lambda row: turns[row.id], default=None)
    if first is None:
        return
    last = max(begun, key=lambda row: turns[row.id])
    if rule.fair and rule.aging_ms:
        # A priority's turn is that of its oldest job, whoever's turn it is in it.
        if any(turns[row.id] <= turns[first.id] for row in held):
            return  # It may have been possible, and its priority the first.
        priorities = {row.new.priority for row in begun}
        of_begun = [row for row in (*begun, *left) if row.new.priority in priorities]
        last = min(of_begun, key=lambda row: turns[row.id])
    if turns[last.id] > turns[first.id]:
        text = f"it was leased, or one of its priority, before job {first.id}"
        yield Overtook(at_s=world.kernel.now_s, job=last.id, text=text)


def _turn(rule: PoolRule, row: Row) -> float:
    """Return by what jobs go before each other but for shares, the least first."""
    if rule.aging_ms:
        return row.run_at_ms - row.new.priority * rule.aging_ms
    return float(-row.new.priority)
