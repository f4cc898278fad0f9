"""Bugs of fair and aged pools, to plant in the simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jobpool.core.rules.quotas import allot, shares
from jobpool.core.rules.quotas.rules import Rules
from jobpool.store.memory.quotas.shares import Turns
from planted_bugs.bug import Promise
from simulation.planting import Change, breaks, nothing


@breaks(Promise.SHARES)
def a_start_costs_its_share_nothing() -> list[Change]:
    return [(Turns, "take", nothing)]


@breaks(Promise.SHARES)
def who_was_away_is_owed_what_others_began() -> list[Change]:
    return [(Turns, "set_clocks", nothing)]


@breaks(Promise.SHARES)
def all_weigh_alike() -> list[Change]:
    return [(Rules, "weight", lambda *_: 1.0)]


@breaks(Promise.SHARES)
def a_lane_is_dealt_what_it_has_not() -> list[Change]:
    def wrong(lanes: Any, *rest: Any) -> Any:
        return shares.deal([(*lane[:2], 2**62) for lane in lanes], *rest)

    return [(allot, "deal", wrong)]


@breaks(Promise.SHARES)
def what_was_due_first_is_cut_last() -> list[Change]:
    right = Turns.heads

    def wrong(self: Any, found: Iterable[Any]) -> list[Any]:
        return sorted(right(self, found), key=lambda head: head.rank)

    return [(Turns, "heads", wrong)]


@breaks(Promise.SHARES)
def what_waits_never_rises() -> list[Change]:
    return [(Rules, "aging_ms", lambda *_: 0.0)]


@breaks(Promise.SHARES)
def lanes_are_as_old_as_their_priority() -> list[Change]:
    def wrong(_self: Any, lanes: Iterable[Any], *_: Any) -> Iterator[Any]:
        yield from lanes

    return [(Turns, "by_age", wrong)]
