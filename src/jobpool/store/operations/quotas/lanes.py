"""Lanes as one transaction reads, locks and leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jobpool.core.rules.quotas.allot import LaneState
from jobpool.core.rules.quotas.rules import Rules, Use
from jobpool.store.operations.quotas.in_force import CHANGE_MAX
from jobpool.store.operations.quotas.stragglers import MANY, Walk, stamp
from jobpool.store.statements.limits import values_from
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import Row, Session

CHORES = 1000
"""Notes that one claim takes, and lanes that it opens."""
LANES = 64
"""Lanes that are looked at in one turn, at most."""
SPARE_LANES = 8
"""For those that turn out to be blocked."""
LOOK_AGAIN_MS = 1000
"""A lane none of whose jobs this run may lease now is left alone for so long."""


_CLOCK_WENT_BACK_MS = 1000
"""Then times that lanes wait for are too late."""


class ClaimMemory:
    """What a store object remembers from claim to claim."""

    def __init__(self) -> None:
        self.walk = Walk()
        self.buckets: set[int] = set()
        """Some that are there."""
        self.recounted_ms = 0
        self.latest_ms = 0
        """The store's clock, at the last claim."""


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

    Attributes:
        states: what was looked at, by id.
        is_short: another claim would find more.
        opens_at_ms: when the next lane opens by itself; None: none does.
    """

    def __init__(
        self, session: Session, rules: Rules, now_ms: int, memory: ClaimMemory
    ) -> None:
        self.states: dict[int, LaneState] = {}
        self.is_short = False
        self.opens_at_ms: int | None = None
        self._session = session
        self._rules = rules
        self._now_ms = now_ms
        self._memory = memory
        self._held: set[int] = set()
        self._asked: set[int] = set()
        """Those from which jobs were read, or whose jobs were stamped anew."""
        self._gave: set[int] = set()
        """Those of them that had some."""
        self._blocked: dict[int, tuple[int, int | None]] = {}
        """Those that cannot go on, with the time and the bucket that they wait for."""
        self._spent: set[int] = set()
        """Those that are left alone for the rest of this claim."""

    def do_chores(self, kinds: Mapping[str, Sequence[str]]) -> Sequence[Row]:
        """Bring in stragglers and noted lanes, and open those whose time has come.

        Returns:
            Notes of buckets.
        """
        session, now_ms = self._session, self._now_ms
        pairs = [(pool, kind) for pool, names in kinds.items() for kind in names]
        stamp(session, self._rules, self._memory.walk.find(session, pairs, now_ms))
        ((has_lanes, has_buckets, self.opens_at_ms),) = session.rows("lanes_look")
        if has_lanes:
            self._join()
        if now_ms < self._memory.latest_ms - _CLOCK_WENT_BACK_MS:
            session.run("open_lanes_of_rules", limit=CHANGE_MAX)
        self._memory.latest_ms = now_ms
        if self.opens_at_ms is not None and self.opens_at_ms <= now_ms:
            opened = session.run("open_due_lanes", now_ms=now_ms, limit=CHORES)
            self.is_short |= opened >= CHORES
            ((*_, self.opens_at_ms),) = session.rows("lanes_look")
        return self.take_notes() if has_buckets else ()

    def stamp_anew(self, lanes: Iterable[Lane]) -> bool:
        """Stamp the jobs of outdated lanes anew; say whether there were any."""
        ids = [one.state.id for one in lanes if one.is_outdated]
        if not ids:
            return False
        found = self._session.rows("jobs_of_lanes", ids=as_json(ids), limit=MANY)
        stamp(self._session, self._rules, [job_id for (job_id,) in found])
        self.is_short |= len(found) >= MANY
        self._join()
        return True

    def _join(self) -> None:
        """Let lanes wait that have got jobs, by their notes."""
        rows = self._session.rows("take_lane_notes", limit=CHORES)
        noted = sorted({lane for (lane,) in rows})
        if noted:
            self._session.run("join_lanes", ids=as_json(noted))
        self.is_short |= len(rows) >= CHORES

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
        rows = self._session.rows(
            "open_lanes",
            pool=pool,
            kinds=as_json(set(kinds)),
            limit=min(LANES, want + SPARE_LANES) + len(self._spent),
            now_ms=self._now_ms,
        )
        return [self._lane(pool, row) for row in rows if row[0] not in self._spent]

    def hold(self, lanes: Sequence[Lane]) -> list[Lane]:
        """Lock lanes; return those that others do not hold, and that are still open.

        Outdated ones are left out: they may be empty now.
        """
        missing = [i for i in (one.state.id for one in lanes) if i not in self._held]
        if missing:
            rows = self._session.rows("lock_lanes", ids=as_json(missing))
            self._held.update(lane for (lane,) in rows)
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

    def finish(self) -> None:
        """Write down what the lanes wait for, and what is left in them."""
        changed: dict[int, Row] = {
            lane: (lane, 1, None, *waits) for lane, waits in self._blocked.items()
        }
        rows: Sequence[Row] = ()
        if self._asked:
            rows = self._session.rows("lanes_left", ids=as_json(sorted(self._asked)))
        for lane, due_ms in rows:
            opens_at_ms, blocked_by = self._blocked.get(lane, (0, None))
            if due_ms is None:
                changed[lane] = lane, 0, None, 0, None
                continue
            if lane not in self._gave and blocked_by is None and not opens_at_ms:
                opens_at_ms = self._now_ms + LOOK_AGAIN_MS
            changed[lane] = lane, 1, due_ms, opens_at_ms, blocked_by
        if changed:
            self._session.run("change_lanes", rows=as_json(changed.values()))
        opening = [row[3] for row in changed.values() if row[3]]
        if self.opens_at_ms is not None:
            opening.append(self.opens_at_ms)
        self.opens_at_ms = min(opening, default=None)

    def _lane(self, pool: str, row: Row) -> Lane:
        lane, kind, tenant, text, rank, vtime = row
        values = values_from(text) or {}
        uses = self._rules.uses(kind, tenant, values)
        state = LaneState(lane, pool, kind, rank, vtime, uses)
        self.states[lane] = state
        paths = self._rules.counted_paths(kind)
        return Lane(state, is_outdated=not values.keys() >= set(paths))
