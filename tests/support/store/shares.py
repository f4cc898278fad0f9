"""What must hold of fair and aged pools in every run, as `invariants` counts it.

Theory of operation. With each claim that has begun jobs of a fair pool goes a record of
whose they were, and of who still waited for nothing but a slot. While two have waited
so from claim to claim, neither may get ahead of the other by over a start of each, by
weight. So of equal ones none gets over twice the starts of another, counted over 20.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from support.store.history import Dealt, History, Overtook, TurnBack

GRAIN = 1e-6


class Unfair(NamedTuple):
    """What is wrong."""

    rule: str
    job: int
    text: str


class _Lead(NamedTuple):
    """By how much the starts of one, by its weight, have exceeded another's."""

    least: float = 0.0
    now: float = 0.0
    most: float = 0.0

    def after(self, change: float) -> _Lead:
        now = self.now + change
        return _Lead(min(self.least, now), now, max(self.most, now))


def wrong_shares(history: History) -> Iterator[Unfair]:
    """Yield every broken promise about shares and aging."""
    for record in history.of(Overtook):
        yield Unfair("I26", record.job, record.text)
    leads: dict[tuple[str, int], dict[tuple[str, str], _Lead]] = {}
    weights: dict[tuple[str, int], dict[str, float]] = {}
    for record in history.records:
        if type(record) is TurnBack:
            of_place = leads.get((record.pool, record.priority), {})
            for pair in [pair for pair in of_place if record.who in pair]:
                of_place[pair] = _Lead()
        elif type(record) is Dealt:
            place, starts = (record.pool, record.priority), dict(record.starts)
            waits = dict(record.waits)
            before, weighed = leads.get(place, {}), weights.get(place, {})
            leads[place], weights[place] = {}, waits
            for one, other in combinations(sorted(waits), 2):
                steps = 1 / waits[one], 1 / waits[other]
                known = before.get((one, other))
                alike = (weighed.get(who) == waits[who] for who in (one, other))
                lead = _Lead()
                if known is not None and all(alike):
                    change = starts.get(one, 0) * steps[0]
                    lead = known.after(change - starts.get(other, 0) * steps[1])
                if lead.most - lead.least > sum(steps) + GRAIN:
                    ahead = lead.most - lead.least
                    text = f"{one!r} and {other!r} came {ahead:g} apart in {place}"
                    yield Unfair("I25", 0, text)
                    lead = _Lead()
                leads[place][one, other] = lead
