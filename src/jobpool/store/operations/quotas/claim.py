"""Leasing from lanes: as many jobs as their buckets have permits for.

Theory of operation. A lane that cannot go on is remembered as blocked, until a time or
on a bucket, and is not read again before that. Whatever may let it go on leaves a note:
a trigger for a job, whoever ends a lease for permits. So the cost of a claim depends on
what it leases, not on what waits.

A lane is blocked on a bucket, and freed, only under that bucket's lock, and the permits
in use are counted under it. A permit that is freed later leaves a note that is seen
later, and finds the lane blocked. A lane is called empty only under its own lock, and
whoever has a note for it waits for that lock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import Lease
from jobpool.core.rules.quotas.allot import Allotment, LaneState, allot
from jobpool.core.rules.quotas.breaker import Change
from jobpool.core.rules.quotas.gcra import SLOW_MAX_S
from jobpool.core.rules.quotas.rules import Rules, Use
from jobpool.store.operations.quotas.buckets import Buckets, Charge
from jobpool.store.operations.quotas.lanes import LANES, ClaimMemory, Lane, Lanes
from jobpool.store.operations.quotas.shares import Shares
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import LeaseRow
from jobpool.store.statements.session import OwnSession, Query, Row

TURNS = 4
RECOUNTED = 100
RECOUNT_EVERY_MS = 1000
FREED_MIN = 8
FREED_MAX = 64
"""Lanes that one note lets look again."""
Read = Callable[[Sequence[Row]], list[LeaseRow]]
"""Converts rows of candidates, and leaves out those that cannot be leased."""


class Asked(NamedTuple):
    """What is wanted of a pool."""

    pool: str
    want: int
    """Most jobs."""
    ahead: int
    """How many of them no slot is free for yet."""


class Claim:
    """One transaction's leasing from lanes.

    Args:
        session: in the transaction.
        rules: what is in force.
        by: the run that leases, and the store's clock.
        memory: of this store object.
        kinds: laned kinds that the run asks for, by pool.
        slow_s: its answer may come so late.
    """

    def __init__(
        self,
        session: OwnSession,
        rules: Rules,
        by: tuple[str, int],
        memory: ClaimMemory,
        kinds: Mapping[str, Sequence[str]],
        *,
        slow_s: float = 0.0,
    ) -> None:
        self._session = session
        self._slow_s = min(slow_s, SLOW_MAX_S)
        self._run_id, self.now_ms = by
        now_ms = self.now_ms
        self._memory = memory
        self.kinds = kinds
        self._buckets = Buckets(
            session, rules, now_ms, memory.buckets, slow_s=self._slow_s
        )
        self._shares = Shares(session, rules, now_ms)
        self._lanes = Lanes(session, rules, now_ms, memory, self._shares)
        self._wanted: Mapping[str, int] = {}
        self._found: Mapping[str, Sequence[Lane]] = {}
        """Open lanes by pool, for the first turn."""
        self._charges: dict[int, tuple[list[Charge], float | None]] = {}
        """By job: what it takes, and within which time it must begin."""
        self._permits: list[Row] = []
        """Of running attempts."""
        self._renewed: set[int] = set()
        """Buckets whose lanes may go on."""
        self._full: set[int] = set()
        """Buckets that lanes were blocked on."""

    @property
    def is_short(self) -> bool:
        """Whether another claim would find more."""
        return self._lanes.is_short or self._shares.is_short

    @property
    def opens_at_ms(self) -> int | None:
        """When the next lane opens by itself; None: none does."""
        return self._lanes.opens_at_ms

    def take_turns(self) -> None:
        """Wait for other claims of the fair pools, before anything else is locked."""
        self._lanes.take_turns(self.kinds)

    def prepare(self, wanted: Mapping[str, int]) -> None:
        """Do the chores, lock the buckets that are needed, and apply what is noted."""
        self._wanted = wanted
        notes, found = self._lanes.do_chores(wanted, self.kinds)
        lanes = [lane for of_pool in found.values() for lane in of_pool]
        uses = [use for lane in lanes for use in lane.uses]
        beside = (self._lanes.to_lock(lanes),) if lanes else ()
        for locked in self._apply(notes, uses, beside=beside):
            self._lanes.locked(locked)
        changed = self._recount() | {bucket for bucket, *_ in notes}
        if self._renew(changed | self._buckets.budgets()):
            self._shares.take_notes()
        else:
            self._found = found

    def _apply(
        self,
        notes: Sequence[Row],
        uses: Iterable[Use],
        also: Iterable[int] = (),
        *,
        beside: Sequence[Query] = (),
    ) -> list[list[Row]]:
        """Lock buckets, and let them know what was noted.

        Returns:
            The rows of what is asked beside, once they are locked.
        """
        noted = {*also, *(bucket for bucket, *_ in notes)}
        answers = self._buckets.lock(uses, also=noted, beside=beside)
        for bucket, permits, held_from_us, until_ms in notes:
            if bucket in self._buckets.states:
                self._buckets.refund(bucket, permits, held_from_us)
                self._buckets.block(bucket, until_ms)
        return answers

    def prepare_for(self, uses: Iterable[Use]) -> None:
        """Lock buckets for permits of running attempts, and apply what is noted."""
        notes = self._lanes.take_notes()
        self._apply(notes, uses)
        self._renew({bucket for bucket, *_ in notes})

    def refill(self, quota: str, buckets: Collection[int]) -> bool:
        """Unblock buckets of a quota, and give their rates all that they can have.

        Returns:
            Whether there was anything to do.
        """
        notes = self._lanes.take_notes()
        self._apply(notes, (), buckets)
        self._renew({bucket for bucket, *_ in notes})
        return self._buckets.refill(quota)

    def look(self, lane: LaneState) -> Allotment | None:
        """Return what one job of a lane could have now; None: somebody else decides."""
        self._buckets.lock(lane.uses)
        if not self._buckets.has(lane.uses):
            self._lanes.is_short = True
            return None
        (allotment,) = allot([lane], self._buckets.states, 1, 0, self.now_ms)
        return allotment

    def want(self, lane: LaneState) -> None:
        """Have whoever frees a permit tell it: an attempt waits for one."""
        for use in lane.uses:
            self._buckets.contest(use.bucket, is_wanted=True)

    def take_for(self, token: int, n: int, job_id: int, lane: LaneState) -> None:
        """Take permits for a running attempt."""
        for one in self._buckets.charge(lane.uses):
            row = one.bucket, token, n, job_id, one.cost, one.held_from_us
            self._permits.append(row)
            self._buckets.probe(one.bucket, token, job_id)

    def report(
        self, bucket: int, counts: Mapping[int, tuple[int, int]]
    ) -> tuple[Change | None, bool]:
        """Count requests of a locked bucket's service, by token.

        Returns:
            Its breaker after that; and whether lanes may have to look again, since it
            is in another state.
        """
        before = self._buckets.states[bucket].breaker.at(self.now_ms)
        found = self._buckets.report(bucket, counts)
        has_changed = found is not None and found.breaker.state is not before.state
        if has_changed:
            self._renew({bucket})
        return found, has_changed

    def take(self, job_id: int, lane: LaneState, within_s: float | None) -> None:
        """Take a job's permits; they are written once it is leased."""
        self._charges[job_id] = self._buckets.charge(lane.uses), within_s

    def fill(
        self, asked: Asked, plain: Sequence[LeaseRow], read: Read
    ) -> list[LeaseRow]:
        """Add jobs of lanes to the plain ones of a pool; take the permits of those.

        A plain one waits while lanes of a higher priority may follow that were not
        looked at, for as long as the turns last: the first may all be blocked.

        Args:
            asked: what is wanted.
            plain: jobs that no quota concerns, at most as many as wanted, in order.
            read: converts rows.

        Returns:
            The first of all, in order.
        """
        pool, want, ahead = asked
        picks: list[LeaseRow] = []
        rest, has_given = list(plain), False
        lane_of: dict[int, int] = {}
        for turn in range(TURNS):
            # What is leased ahead gets its share once, not half of what is left again.
            left = max(0, want - len(picks) - (ahead if has_given else 0))
            passed = self._lanes.passed
            lanes = self._next_lanes(pool, turn, rest) if left > 0 else ()
            if not lanes:
                break
            asked = Asked(pool, left, 0 if has_given else min(ahead, left))
            lowest = min((row.priority for row in plain), default=None)
            allotted = self._allot(asked, [lane.state for lane in lanes], lowest)
            self._block(allotted.values())
            most = {one.lane: one.most for one in allotted.values() if one.most}
            has_given |= bool(most)
            if not most and self._lanes.passed == passed:
                break  # they may not be leased ahead: the next turn would read the same
            rows = self._heads(most, lane_of)
            lane_of |= {row[0]: row[-1] for row in rows}
            fresh = read([row[:-1] for row in rows])
            states = self._lanes.states
            due = [row for row in rest if not self._lanes.may_hide(pool, row.priority)]
            ordered = self._shares.sort(pool, [*due, *fresh], lane_of, states)[:left]
            picks += ordered
            picked = {row.id for row in ordered}
            rest = [row for row in rest if row.id not in picked]
            chosen = [row for row in ordered if row.id in lane_of]
            taken = Counter(lane_of[row.id] for row in chosen)
            charges = {
                lane: self._buckets.charge(self._lanes.states[lane].uses, jobs)
                for lane, jobs in taken.items()
            }
            for lane, jobs in taken.items():
                self._shares.picked(states[lane], jobs)
            for row in chosen:
                lane = lane_of[row.id]
                self._charges[row.id] = charges[lane], allotted[lane].begin_within_s
        else:
            self._lanes.is_short |= len(picks) + len(rest) < want - ahead
        picks += rest[: want - len(picks)]
        return self._shares.sort(pool, picks, lane_of, self._lanes.states)

    def _allot(
        self, asked: Asked, lanes: Sequence[LaneState], lowest: int | None
    ) -> dict[int, Allotment]:
        """Say what may be leased of lanes; in an aged pool, only what goes first."""
        pool, want, ahead = asked
        lanes = self._shares.counted(lanes, want, lowest)
        by = self._buckets.states, want, ahead, self.now_ms
        found = {one.lane: one for one in allot(lanes, *by)}
        if not self._shares.reorders(pool):
            return found
        blocked = {
            lane: one
            for lane, one in found.items()
            if one.opens_at_ms is not None or one.blocked_by is not None
        }
        left = [lane for lane in lanes if lane.id not in blocked]
        following = self._shares.in_turn(pool, left, want)
        return blocked | {one.lane: one for one in allot(following, *by)}

    def finish(self, leases: Sequence[Lease]) -> tuple[Lease, ...]:
        """Write permits, buckets and lanes; return the leases with what quotas say."""
        session = self._session
        for one in leases:
            for charge in self._charges.get(one.id, ((), None))[0]:
                self._buckets.probe(charge.bucket, one.token, one.id)
        rows = self._permits + [
            (charge.bucket, one.token, 0, one.id, charge.cost, charge.held_from_us)
            for one in leases
            if one.id in self._charges
            for charge in self._charges[one.id][0]
        ]
        queries: list[Query] = []
        if rows:
            given = {"rows": as_json(rows), "run_id": self._run_id}
            queries.append(("insert_permits", given))
        if (leaving := self._lanes.leaving()) is not None:
            queries.append(leaving)
        if self._renewed:
            if queries:
                session.ask(*queries)
            queries = self._finish_renewed()
        queries += [*self._buckets.storing(), *self._shares.leaving(leases)]
        if queries:
            session.ask(*queries)
        return tuple(
            msgspec.structs.replace(
                one, laned=True, begin_within_s=self._within_s(self._charges[one.id][1])
            )
            if one.id in self._charges
            else one
            for one in leases
        )

    def _within_s(self, least_s: float | None) -> float | None:
        return None if least_s is None else least_s + self._slow_s

    def _next_lanes(
        self, pool: str, turn: int, plain: Sequence[LeaseRow]
    ) -> Sequence[Lane]:
        """Return open lanes of a pool, with their buckets and themselves locked.

        As many as may be, if jobs wait for what may be found.
        """
        lanes = None if turn else self._found.get(pool)
        if lanes is None:
            want = LANES if turn and plain else self._wanted[pool]
            lanes = self._lanes.open(pool, self.kinds[pool], want)
        self._buckets.lock(use for one in lanes for use in one.uses)
        known = [one for one in lanes if self._buckets.has(one.uses)]
        self._lanes.is_short |= len(known) < len(lanes)
        return self._lanes.hold(known)

    def _heads(
        self, asked: Mapping[int, int], lane_of: Mapping[int, int]
    ) -> Sequence[Row]:
        """Return rows of the first jobs of lanes that were not read before."""
        if not asked:
            return ()
        before = Counter(lane_of.values())
        alike = defaultdict[int, list[int]](list)
        for lane, most in asked.items():
            alike[most + before[lane]].append(lane)
        by = {"run_id": self._run_id, "now_ms": self.now_ms}
        answers = self._session.ask(
            *(
                ("lane_heads", {**by, "ids": as_json(lanes), "limit": limit})
                for limit, lanes in alike.items()
            )
        )
        fresh = [row for rows in answers for row in rows if row[0] not in lane_of]
        found = Counter(row[-1] for row in fresh)
        self._lanes.asked(asked, found)
        return fresh

    def _block(self, allotted: Iterable[Allotment]) -> None:
        """Remember which lanes cannot go on, and until when."""
        for one in allotted:
            if one.opens_at_ms is None and one.blocked_by is None:
                continue
            # Also one that waits for a time: something may come back before that.
            bucket = one.blocked_by or self._buckets.short_of(
                self._lanes.states[one.lane].uses
            )
            opens_at_ms = one.opens_at_ms or 0
            if self._buckets.is_budget(bucket):
                # Of retries that share a budget one lane is enough to see that it has
                # some again: thousands would be looked at before what is not held back.
                opens_at_ms *= bucket not in self._full
            self._lanes.block(one.lane, opens_at_ms, bucket)
            self._full.add(bucket)
            self._buckets.contest(bucket, is_wanted=True)

    def _recount(self) -> set[int]:
        """Check some buckets that lanes wait for, in case no note has come."""
        if abs(self.now_ms - self._memory.recounted_ms) < RECOUNT_EVERY_MS:
            return set()
        self._memory.recounted_ms = self.now_ms
        return set(self._buckets.lock_contested(RECOUNTED))

    def _renew(self, buckets: Collection[int]) -> bool:
        """Free the first lanes that wait for these; say whether there were any."""
        freed = 0
        for bucket in sorted(buckets):
            if not self._buckets.is_contested(bucket):
                continue
            self._renewed.add(bucket)
            if self._buckets.may_go_on(bucket):
                limit = max(FREED_MIN, min(FREED_MAX, self._buckets.room(bucket)))
                freed += self._session.run("free_lanes", bucket=bucket, limit=limit)
        return freed > 0

    def _finish_renewed(self) -> list[Query]:
        """Return what leaves a note of what is free and was not given out yet."""
        rows = self._session.rows("wanted_buckets", ids=as_json(sorted(self._renewed)))
        wanted = {bucket for (bucket,) in rows}
        for bucket in self._renewed:
            self._buckets.contest(bucket, is_wanted=bucket in wanted)
        left = [
            (bucket, 0)
            for bucket in sorted(wanted - self._full)
            if self._buckets.may_go_on(bucket) and self._buckets.room(bucket)
        ]
        if not left:
            return []
        self._lanes.is_short = True
        return [("note_buckets", {"rows": as_json(left)})]
