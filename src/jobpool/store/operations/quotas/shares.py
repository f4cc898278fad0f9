"""Whose turn it is in fair and aged pools, as one claim reads and leaves it.

Theory of operation. A share has a row for each kind of it, so that claims of some kinds
alone find those whose turn it is by an index. A row waits if one of its lanes is open:
what opens a lane leaves a note (a trigger), and a claim that finds none, or has taken
the last, says that it does not wait. All claims of a fair pool go one after the other:
each holds the pool's row from its beginning. So a note that it does not see yet comes
from a transaction that is still open, and the next claim sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.quotas.allot import LaneState
from jobpool.core.rules.quotas.rules import Rules
from jobpool.core.rules.quotas.shares import (
    BY_KIND,
    Share,
    aged_ms,
    effective,
    last_turn,
)
from jobpool.store.statements.limits import decoded
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import LeaseRow
from jobpool.store.statements.session import OwnSession, Query, Row

NOTES = 1000
"""Notes that one claim takes."""
OF_TENANT, OF_KIND = 2, 16
"""Lanes of a share that are looked at in one turn."""
PRIORITIES = 65_536
"""All that there can be: in an aged pool, any may be the next."""
Place = tuple[float, int]
"""Of a priority: the age of its oldest, or 0; and the priority, the highest first."""
Key = tuple[Place, float, int, int, int]
"""By what leases of a pool are ordered: their priority's place, their turn or age,
their priority, when they were due, and their number."""
_FIRST: Place = (0.0, 0)


class Account(NamedTuple):
    """What a share is charged on, whichever kinds it has."""

    pool: str
    priority: int
    who: str


class FairLane(NamedTuple):
    """An open lane of a share."""

    row: Row
    """As of open_lanes."""
    share: Share


def aged_pools(rules: Rules) -> str:
    """Return, as JSON, pools whose lanes are all of one rank, and how jobs rise."""
    aged = {
        pool: rule.aging_ms
        for pool, rule in rules.pools.items()
        if rule.aging_s is not None and not rule.fair
    }
    return msgspec.json.encode(aged).decode()


def fair_pools(rules: Rules) -> str:
    """Return, as JSON, pools with shares, and who has them."""
    fair = {pool: rule.fair for pool, rule in rules.pools.items() if rule.fair}
    return msgspec.json.encode(fair).decode()


class Shares:
    """The fair and aged pools of one claim.

    Args:
        session: in the transaction.
        rules: what is in force.
        now_ms: the store's clock.

    Attributes:
        is_short: there are more notes than were taken.
    """

    def __init__(self, session: OwnSession, rules: Rules, now_ms: int) -> None:
        self.is_short = False
        self._session = session
        self._rules = rules
        self._now_ms = now_ms
        self._pools: list[str] = []
        self._clocks: dict[str, dict[int, float]] = {}
        self._vtimes: dict[Account, float] = {}
        """Of accounts that were read, as this claim has charged them."""
        self._began: dict[Account, float] = {}
        """As they were before."""
        self._seen: dict[int, str] = {}
        """Shares that may not wait any more, with their pools."""
        self._accounts: dict[int, Account] = {}
        """Of lanes."""
        self._places: dict[Account, Place] = {}
        """Of priorities, whosoever's."""
        self._keys: dict[int, Key] = {}
        """Of jobs that were picked."""

    def lock(self, pools: Iterable[str], *, has_news: bool) -> bool:
        """Wait until no other claim gives out turns of the fair ones of these pools.

        Args:
            pools: those that are leased from.
            has_news: the rules of pools are not those of the last claim.

        Returns:
            Whether lanes may have opened without a note: all must be looked at.
        """
        every = sorted(pool for pool in self._rules.pools if self._rules.fair(pool))
        self._pools = [pool for pool in every if pool in set(pools)]
        if has_news and every:  # Also of others: lanes that open there leave notes now.
            self._session.run("make_fair_pools", pools=as_json(every))
            by_kind = [pool for pool in every if self._rules.fair(pool) == BY_KIND]
            self._session.run("drop_tenants_shares", pools=as_json(by_kind))
        if not self._pools:
            return has_news
        named = {"pools": as_json(self._pools)}
        rows = self._session.rows("lock_fair_pools", **named)
        is_missing = len(rows) < len(self._pools)
        if is_missing:
            self._session.run("make_fair_pools", **named)
            rows = self._session.rows("lock_fair_pools", **named)
        for pool, text in rows:
            self._clocks[pool] = decoded(text, dict[int, float]) or {}
        return has_news or is_missing

    @property
    def looking(self) -> Sequence[Query]:
        """The query whether anything is noted; none, without a fair pool."""
        named = {"pools": as_json(self._pools)}
        return [("share_notes_look", named)] if self._pools else []

    def take_notes(self) -> None:
        """Let shares wait whose lanes have opened, and give turns back."""
        if not self._pools:
            return
        rows = self._session.rows(
            "take_share_notes", pools=as_json(self._pools), limit=NOTES
        )
        self.is_short |= len(rows) >= NOTES
        joined = set()
        refunds: Counter[Account] = Counter()
        weights: dict[Account, float] = {}
        for pool, kind, priority, tenant, refund in rows:
            account = Account(pool, priority, self._rules.who(pool, kind, tenant))
            weights[account] = self._rules.weight(pool, kind, tenant)
            if refund:
                refunds[account] += refund
            else:
                joined.add((*account, kind))
        if joined:
            self._session.run("join_shares", rows=as_json(sorted(joined)))
        if refunds:
            back = [(*one, 0.0, -n / weights[one]) for one, n in refunds.items()]
            self._session.run("spend_shares", rows=as_json(back))

    def opening(
        self, given: Mapping[str, object], pool: str, spent: Iterable[int]
    ) -> Query:
        """Return the query for the lanes of those whose turn it is.

        Args:
            given: what `open_lanes` is given.
            pool: a fair one.
            spent: lanes that are left out.
        """
        aging_ms, fair = self._rules.aging_ms(pool), self._rules.fair(pool)
        return "fair_lanes", {
            **given,
            "aging_ms": aging_ms,
            "depth": PRIORITIES if aging_ms else given["limit"],
            "fair": fair,
            "each": OF_KIND if fair == BY_KIND else OF_TENANT,
            "spent": as_json(spent),
        }

    def read(self, pool: str, rows: Sequence[Row], most: int) -> list[FairLane]:
        """Return the lanes of rows of `opening`: the first ones of each share first."""
        found: list[tuple[int, FairLane]] = []
        of_share: Counter[int] = Counter()
        clocks = self._clocks.get(pool, {})
        for share, priority, who, vtime, kind, lane, tenant, text, due_ms in rows:
            self._seen[share] = pool
            if lane is None:
                continue
            account = Account(pool, priority, who)
            if account not in self._began:
                stored = effective(vtime, clocks.get(priority, 0.0))
                self._began[account] = self._vtimes[account] = stored
            self._accounts[lane] = account
            weight = self._rules.weight(pool, kind, tenant)
            turn = Share(who, self._vtimes[account], weight)
            row = (lane, kind, tenant, text, priority, due_ms)
            found.append((of_share[share], FairLane(row, turn)))
            of_share[share] += 1
        found.sort(key=lambda one: one[0])
        return [one for _, one in found[:most]]

    def counted(
        self, lanes: Sequence[LaneState], want: int, lowest: int | None
    ) -> Sequence[LaneState]:
        """Return lanes with how many jobs they have, if one could be given too many.

        What a lane of a high rank is given and does not have would go to a lower one,
        while others of the high one wait.

        Args:
            lanes: of one pool.
            want: most jobs.
            lowest: the least priority of jobs that no quota concerns; None: of none.
        """
        ranks = Counter(one.rank for one in lanes)
        shared = max((rank for rank, count in ranks.items() if count > 1), default=None)
        least = min(ranks, default=0) if lowest is None else min(lowest, *ranks)
        if shared is None or shared <= least:
            return lanes
        ids = as_json(one.id for one in lanes)
        jobs: dict[int, int] = dict(
            self._session.rows("count_in_lanes", ids=ids, limit=want)
        )
        return [one._replace(jobs=jobs.get(one.id, 0)) for one in lanes]

    def reorders(self, pool: str) -> bool:
        """Say whether which lanes are blocked changes the order of the others."""
        return self._rules.aging_ms(pool) > 0

    def in_turn(
        self, pool: str, lanes: Sequence[LaneState], want: int
    ) -> Sequence[LaneState]:
        """Return lanes of an aged pool as its order has them: with ranks that say so.

        Args:
            pool: an aged one.
            lanes: those that nothing blocks.
            want: most jobs.
        """
        aging_ms = self._rules.aging_ms(pool)
        if not lanes:
            return ()
        if self._rules.fair(pool):
            for lane in lanes:
                place = aged_ms(lane.rank, 0, aging_ms) + lane.vtime, -lane.rank
                at = Account(pool, lane.rank, "")
                self._places[at] = min(self._places.get(at, place), place)
            order = sorted({self._places[Account(pool, one.rank, "")] for one in lanes})
            return [
                one._replace(
                    rank=-order.index(self._places[Account(pool, one.rank, "")])
                )
                for one in lanes
            ]
        ids = as_json(one.id for one in lanes)
        counted: dict[int, int] = dict(
            self._session.rows("next_of_lanes", ids=ids, limit=want, aging_ms=aging_ms)
        )
        return [one._replace(jobs=n) for one in lanes if (n := counted.get(one.id, 0))]

    def sort(
        self,
        pool: str,
        rows: Collection[LeaseRow],
        lane_of: Mapping[int, int],
        states: Mapping[int, LaneState],
    ) -> list[LeaseRow]:
        """Return jobs of a pool as they are to be leased.

        Args:
            pool: the pool.
            rows: jobs; those that were not sorted before were just read.
            lane_of: their lanes, unless they are of none.
            states: of lanes, with the turns of their shares.
        """
        aging_ms = self._rules.aging_ms(pool)
        starts: Counter[Account] = Counter()
        for row in sorted(rows, key=lambda row: (_due_ms(row), row.id)):
            if row.id in self._keys:
                continue
            place, turn = (0.0, -row.priority), 0.0
            lane = states[lane_of[row.id]] if row.id in lane_of else None
            if lane is not None and lane.share is not None:
                account = self._accounts[lane.id]
                starts[account] += 1
                turn = last_turn(lane.share, starts[account])
                place = self._places.get(account._replace(who=""), place)
            elif aging_ms:
                place, turn = _FIRST, aged_ms(row.priority, _due_ms(row), aging_ms)
            self._keys[row.id] = place, turn, -row.priority, _due_ms(row), row.id
        return sorted(rows, key=lambda row: self._keys[row.id])

    def picked(self, lane: LaneState, jobs: int) -> None:
        """Note that jobs of a lane are to be leased: other picks come after them."""
        account = self._accounts.get(lane.id)
        if account is not None and lane.share is not None:
            self._vtimes[account] += jobs / lane.share.weight

    def turn_of(self, lane: int) -> float | None:
        """Return the turn that a lane's next job is to take; None: it has no share."""
        account = self._accounts.get(lane)
        return None if account is None else self._vtimes[account]

    def leaving(self, leases: Sequence[Lease]) -> list[Query]:
        """Return what charges the shares of what was leased; once lanes are left."""
        starts: Counter[Account] = Counter()
        weights: dict[Account, float] = {}
        for one in leases:
            if one.pool not in self._clocks:
                continue
            who = self._rules.who(one.pool, one.kind, one.tenant)
            account = Account(one.pool, one.priority, who)
            starts[account] += 1
            weights[account] = self._rules.weight(one.pool, one.kind, one.tenant)
        queries: list[Query] = []
        if starts:
            rows = [
                (*one, self._clock(one), count / weights[one])
                for one, count in starts.items()
            ]
            queries.append(("spend_shares", {"rows": as_json(rows)}))
        moved = set()
        for account, count in starts.items():
            if account not in self._began:  # A suspect, which begins alone.
                continue
            share = Share(account.who, self._began[account], weights[account])
            turn = last_turn(share, count)
            if turn > self._clock(account):
                self._clocks[account.pool][account.priority] = turn
                moved.add(account.pool)
        if moved:
            clocks = [(p, msgspec.json.encode(self._clocks[p]).decode()) for p in moved]
            queries.append(("set_clocks", {"rows": as_json(sorted(clocks))}))
        if self._seen:
            seen = [(one, self._rules.fair(p)) for one, p in self._seen.items()]
            queries.append(("leave_shares", {"rows": as_json(sorted(seen))}))
        return queries

    def _clock(self, account: Account) -> float:
        return self._clocks[account.pool].get(account.priority, 0.0)


def _due_ms(row: LeaseRow) -> int:
    when = row.run_at_ms
    return when if isinstance(when, int) else 0
