"""Lanes as one transaction reads, locks and leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jobpool.core.rules.quotas.allot import LaneState
from jobpool.core.rules.quotas.lanes import is_again
from jobpool.core.rules.quotas.rules import Rules, Use
from jobpool.core.rules.quotas.shares import PoolRule, Share
from jobpool.store.operations.quotas.in_force import CHANGE_MAX
from jobpool.store.operations.quotas.shares import Shares, aged_pools, fair_pools
from jobpool.store.operations.quotas.stragglers import MANY, Walk, stamp
from jobpool.store.statements.limits import values_from
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import OwnSession, Query, Row

CHORES = 1000
"""Notes that one claim takes, and lanes that it opens."""
LANES = 64
"""Lanes that are looked at in one turn, at most."""
SPARE_LANES = 8
"""For those that turn out to be blocked."""
WALK_EVERY_MS = 1000
WALKED = 100
"""Lanes of jobs that are looked at so often."""
LOOK_AGAIN_MS = 1000
"""A lane none of whose jobs this run may lease now is left alone for so long."""


_BELOW_ALL = -(2**63)
"""Lower than the number of any lane."""
_CLOCK_WENT_BACK_MS = 1000
"""Then times that lanes wait for are too late."""


class ClaimMemory:
    """What a store object remembers from claim to claim."""

    def __init__(self) -> None:
        self.walk = Walk()
        self.buckets: set[int] = set()
        """Some that are there."""
        self.recounted_ms = 0
        self.lanes_walked_ms = 0
        self.lanes_walked_to = _BELOW_ALL
        """The last lane that was looked at, because it may be missing."""
        self.pools: Mapping[str, PoolRule] = {}
        """By which rules of pools lanes were looked at last."""
        self.is_walking = False
        """Those rules are new, so all lanes are looked at."""
        self.latest_ms = 0
        """The store's clock, at the last claim."""

    def walk_all(self, pools: Mapping[str, PoolRule]) -> None:
        """Have all lanes looked at by these rules of pools."""
        self.pools, self.is_walking = pools, True
        self.lanes_walked_to = _BELOW_ALL


class Lane(NamedTuple):
    """An open lane."""

    state: LaneState
    is_outdated: bool
    """Its jobs are not stamped with all that their kind's quotas count by now."""

    @property
    def uses(self) -> tuple[Use, ...]:
        """The buckets that its jobs need; an outdated lane needs none."""
        return () if self.is_outdated else self.state.uses


class Lanes:
    """The lanes of one transaction.

    Args:
        session: in the transaction.
        rules: what is in force.
        now_ms: the store's clock.
        memory: of this store object.
        shares: of fair and aged pools.

    Attributes:
        states: what was looked at, by id.
        is_short: another claim would find more.
        opens_at_ms: when the next lane opens by itself; None: none does.
    """

    def __init__(
        self,
        session: OwnSession,
        rules: Rules,
        now_ms: int,
        memory: ClaimMemory,
        shares: Shares,
    ) -> None:
        self.states: dict[int, LaneState] = {}
        self.is_short = False
        self.opens_at_ms: int | None = None
        self._session = session
        self._rules = rules
        self._now_ms = now_ms
        self._memory = memory
        self._shares = shares
        self._held: set[int] = set()
        self._asked: set[int] = set()
        """Those from which jobs were read, or whose jobs were stamped anew."""
        self._gave: set[int] = set()
        """Those of them that had some."""
        self._blocked: dict[int, tuple[int, int | None]] = {}
        """Those that cannot go on, with the time and the bucket that they wait for."""
        self._aged = aged_pools(rules)
        self._spent: set[int] = set()
        """Those that are left alone for the rest of this claim."""
        self._lowest: dict[str, int] = {}
        """By pool, the rank of the last lane that was looked at, if more may follow."""

    def take_turns(self, pools: Iterable[str]) -> None:
        """Wait for other claims of the fair ones of these pools."""
        has_news = self._memory.pools != self._rules.pools
        if self._shares.lock(pools, has_news=has_news):
            self._memory.walk_all(self._rules.pools)

    def do_chores(
        self, wanted: Mapping[str, int], kinds: Mapping[str, Sequence[str]]
    ) -> tuple[Sequence[Row], dict[str, list[Lane]]]:
        """Bring in stragglers and noted lanes, and open those whose time has come.

        Args:
            wanted: how many jobs, by pool.
            kinds: laned kinds, by pool.

        Returns:
            Notes of buckets; and open lanes, by pool.
        """
        session, now_ms, walk = self._session, self._now_ms, self._memory.walk
        opening = [self._opening(pool, kinds[pool], wanted[pool]) for pool in kinds]
        pairs = [(pool, kind) for pool, names in kinds.items() for kind in names]
        looking = walk.first(pairs, now_ms)
        asked = looking.query, ("lanes_look", {}), *opening, *self._shares.looking
        seen, look, *found = session.ask(*asked)
        is_noted = any(noted for ((noted,),) in found[len(opening) :])
        ((has_lanes, has_buckets, self.opens_at_ms),) = look
        strays = walk.found(session, looking, seen)
        stamp(session, self._rules, strays)
        was_set_back = self._mend_times()
        has_lost = self._find_lost()
        is_due = self.opens_at_ms is not None and self.opens_at_ms <= now_ms
        notes: Sequence[Row] = ()
        if has_buckets or has_lanes or strays or is_due:
            notes = self._take(has_lanes or strays, has_buckets, is_due=is_due)
        if has_lanes or strays or is_due or was_set_back or has_lost or is_noted:
            self._shares.take_notes()
            look, *found = session.ask(("lanes_look", {}), *opening)
            ((*_, self.opens_at_ms),) = look
        lanes = self._by_pool(wanted, kinds, found)
        if self._stamp_anew(one for of_pool in lanes.values() for one in of_pool):
            self._shares.take_notes()
            lanes = self._by_pool(wanted, kinds, session.ask(*opening))
        return notes, lanes

    def _mend_times(self) -> bool:
        """Open lanes whose times are too late, if the clock was set back."""
        passed_ms = self._now_ms - self._memory.latest_ms
        self._memory.latest_ms = self._now_ms
        if passed_ms >= -_CLOCK_WENT_BACK_MS:
            return False
        self._session.run("open_lanes_of_rules", limit=CHANGE_MAX)
        return True

    def _find_lost(self) -> bool:
        """Look at some lanes, once in a while: whoever has deleted one left no note."""
        memory = self._memory
        is_early = abs(self._now_ms - memory.lanes_walked_ms) < WALK_EVERY_MS
        if is_early and not memory.is_walking:
            return False
        memory.lanes_walked_ms = self._now_ms
        most = CHORES if memory.is_walking else WALKED
        by = {"after": memory.lanes_walked_to, "limit": most, "aged": self._aged}
        rows = self._session.rows("lanes_of_jobs", **by, fair=fair_pools(self._rules))
        has_more = len(rows) >= most
        memory.lanes_walked_to = rows[-1][0] if has_more else _BELOW_ALL
        memory.is_walking &= has_more
        self.is_short |= memory.is_walking
        lost = sorted(lane for lane, is_lost in rows if is_lost)
        if lost:
            self._join(lost)
            self._session.run("note_open_lanes", ids=as_json(lost))
        return bool(lost)

    def _join(self, lanes: Sequence[int]) -> None:
        self._session.run("join_lanes", ids=as_json(lanes), aged=self._aged)

    def _stamp_anew(self, lanes: Iterable[Lane]) -> bool:
        """Stamp the jobs of outdated lanes anew; say whether there were any."""
        ids = [one.state.id for one in lanes if one.is_outdated]
        if not ids:
            return False
        found = self._session.rows("jobs_of_lanes", ids=as_json(ids), limit=MANY)
        stamp(self._session, self._rules, [job_id for (job_id,) in found])
        self.is_short |= len(found) >= MANY
        self._take(found, ())
        return True

    def _take(
        self, lanes: object, buckets: object, *, is_due: bool = False
    ) -> Sequence[Row]:
        """Take notes; let lanes wait that have got jobs, and open those that are due.

        Args:
            lanes: true if there are notes of lanes.
            buckets: true if there are notes of buckets.
            is_due: a lane's time has come.

        Returns:
            Notes of buckets, which are gone then.
        """
        queries: list[Query] = []
        if lanes:
            queries.append(("take_lane_notes", {"limit": CHORES}))
        if buckets:
            queries.append(("take_bucket_notes", {"limit": CHORES}))
        if is_due:
            due = {"now_ms": self._now_ms, "limit": CHORES}
            queries.append(("open_due_lanes", due))
        answers = iter(self._session.ask(*queries))
        if lanes:
            rows = next(answers)
            noted = sorted({lane for (lane,) in rows})
            if noted:
                self._join(noted)
            # Without any, another claim holds them, and may be rolled back.
            self.is_short |= not rows or len(rows) >= CHORES
        notes = next(answers) if buckets else []
        self.is_short |= bool(buckets) and (not notes or len(notes) >= CHORES)
        return notes

    def take_notes(self) -> Sequence[Row]:
        """Return notes of buckets, which are gone then."""
        notes = self._session.rows("take_bucket_notes", limit=CHORES)
        self.is_short |= len(notes) >= CHORES
        return notes

    def open(self, pool: str, kinds: Sequence[str], want: int) -> list[Lane]:
        """Return the first open lanes of a pool, but for those to be left alone.

        Args:
            pool: the pool.
            kinds: laned kinds.
            want: how many jobs are wanted: each lane has at least one.
        """
        name, given = self._opening(pool, kinds, want)
        return self._read(pool, want, self._session.rows(name, **given))

    def _opening(self, pool: str, kinds: Sequence[str], want: int) -> Query:
        limit = _most(want) + len(self._spent)
        given = {"pool": pool, "kinds": as_json(set(kinds)), "limit": limit}
        given["now_ms"] = self._now_ms
        if self._rules.fair(pool):
            return self._shares.opening(given, pool, self._spent)
        return "open_lanes", given

    def _by_pool(
        self,
        wanted: Mapping[str, int],
        pools: Iterable[str],
        found: Iterable[Sequence[Row]],
    ) -> dict[str, list[Lane]]:
        pairs = zip(pools, found, strict=False)  # what is noted of shares follows
        return {pool: self._read(pool, wanted[pool], rows) for pool, rows in pairs}

    def _read(self, pool: str, want: int, rows: Sequence[Row]) -> list[Lane]:
        if self._rules.fair(pool):
            fair = self._shares.read(pool, rows, _most(want))
            return [self._lane(pool, one.row, one.share) for one in fair]
        limit = _most(want) + len(self._spent)
        self._lowest.pop(pool, None)
        if len(rows) >= limit and not self._shares.reorders(pool):
            *_, self._lowest[pool], _ = rows[-1]
        return [self._lane(pool, row) for row in rows if row[0] not in self._spent]

    @property
    def passed(self) -> int:
        """How many lanes are left alone for the rest of this claim."""
        return len(self._spent)

    def may_hide(self, pool: str, priority: int) -> bool:
        """Say whether lanes of a higher priority may follow that were not looked at."""
        return priority < self._lowest.get(pool, priority)

    def to_lock(self, lanes: Iterable[Lane]) -> Query:
        """Return the query that locks lanes; give its rows to `locked`."""
        ids = (one.state.id for one in lanes)
        wanted = [lane for lane in ids if lane not in self._held]
        return "lock_lanes", {"ids": as_json(wanted)}

    def locked(self, rows: Iterable[Row]) -> None:
        """Note which lanes are locked."""
        self._held.update(lane for (lane,) in rows)

    def hold(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Lock lanes; return those that others do not hold, and that are still open.

        Outdated ones are left out: they may be empty now.
        """
        if any(one.state.id not in self._held for one in lanes):
            name, given = self.to_lock(lanes)
            self.locked(self._session.rows(name, **given))
        held = [one for one in lanes if one.state.id in self._held]
        if len(held) < len(lanes):
            self.is_short = True
            self._spent.update({one.state.id for one in lanes} - self._held)
        outdated = [one.state.id for one in held if one.is_outdated]
        for left in (self._asked, self._gave, self._spent):
            left.update(outdated)
        return [one for one in held if not one.is_outdated]

    def asked(self, most: Mapping[int, int], found: Mapping[int, int]) -> None:
        """Note how many jobs lanes were asked for, and how many they had."""
        self._asked.update(most)
        self._gave.update(found)
        self._spent.update(i for i, count in most.items() if found.get(i, 0) < count)

    def block(self, lane: int, opens_at_ms: int, bucket: int) -> None:
        """Note that a lane cannot go on before a time (0: it has none) or a note."""
        self._spent.add(lane)
        self._blocked[lane] = opens_at_ms, bucket

    def leaving(self) -> Query | None:
        """Return what writes down how the lanes are left; None: nothing was done.

        Of each its time and bucket that it waits for, if it still has jobs.
        """
        left: dict[int, tuple[int, int | None]] = dict.fromkeys(self._asked, (0, None))
        again = self._now_ms + LOOK_AGAIN_MS, None
        left |= dict.fromkeys(self._asked - self._gave, again)
        left |= self._blocked
        times = [opens_at_ms for opens_at_ms, _ in left.values() if opens_at_ms]
        if self.opens_at_ms is not None:
            times.append(self.opens_at_ms)
        self.opens_at_ms = min(times, default=None)
        if not left:
            return None
        rows = as_json((i, *waits, *self._leaves(i)) for i, waits in left.items())
        return "leave_lanes", {"rows": rows}

    def _leaves(self, lane: int) -> tuple[float | None, float | None]:
        """Return whose turn a lane is, in a fair pool; how fast it rises, in others."""
        pool = self.states[lane].pool
        if self._rules.fair(pool):
            return self._shares.turn_of(lane), None
        return None, self._rules.aging_ms(pool) or None

    def _lane(self, pool: str, row: Row, share: Share | None = None) -> Lane:
        lane, kind, tenant, text, rank, vtime = row
        values = values_from(text) or {}
        uses = self._rules.uses(kind, tenant, values, again=is_again(lane))
        state = LaneState(lane, pool, kind, rank, vtime, uses, share)
        self.states[lane] = state
        paths = self._rules.counted_paths(kind)
        return Lane(state, is_outdated=not values.keys() >= set(paths))


def _most(want: int) -> int:
    """Return how many lanes are looked at for so many jobs: each has at least one."""
    return min(LANES, want + SPARE_LANES)
