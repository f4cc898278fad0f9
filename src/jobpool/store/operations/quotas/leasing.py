"""What leasing asks of quotas: which kinds have lanes, and which suspects wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobpool.core.rules.quotas.allot import Allotment, LaneState
from jobpool.core.rules.quotas.lanes import is_again
from jobpool.store.operations.quotas.claim import Claim
from jobpool.store.operations.quotas.in_force import Governing, InForce
from jobpool.store.operations.quotas.lanes import ClaimMemory
from jobpool.store.operations.quotas.view import count_in_lanes, see
from jobpool.store.statements.limits import values_from
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.quotas import shortage
from jobpool.store.statements.session import OwnSession, Session

SUSPECTS = 100
"""Suspects of laned kinds that are looked at; nearly always there is none."""
Kinds = Mapping[str, Sequence[str]]
"""By pool."""


class Split(NamedTuple):
    """The kinds that a run asks for."""

    plain: Kinds
    """Leased by kind, from the queue of all."""
    laned: Kinds
    """Leased from lanes."""

    def nothing_if(self, *, alone: bool) -> Split:
        """Return no kinds, if what is leased otherwise is to be alone."""
        return Split({}, {}) if alone else self


class HeldSuspects(NamedTuple):
    """Suspects of laned kinds."""

    held: Sequence[int] = ()
    """Those that a quota holds back: they are not due."""
    allowed: Mapping[int, tuple[LaneState, float | None]] = {}
    """The others, with what they need and within which time they must begin."""


class LanedLeasing(Governing):
    """The part of the store that splits kinds, and claims."""

    _claims: ClaimMemory

    def _split(self, wanted: Mapping[str, int], kinds: Kinds) -> Split:
        """Split the kinds of pools that want any, by what is known to be in force."""
        asked = {
            pool: kinds[pool]
            for pool, most in wanted.items()
            if most > 0 and kinds.get(pool)
        }
        known = self._in_force
        if known.rules.is_empty:
            return Split(asked, {})
        return Split(*(_where(known, asked, laned=laned) for laned in (False, True)))

    def _refresh(
        self, session: OwnSession, version: object, now_ms: int, run_id: str
    ) -> bool:
        """Read what is in force, if it may have changed; say whether it was read."""
        if self._in_force.is_current(version, now_ms, run_id):
            return False
        self._in_force = self._read_in_force(session, version, now_ms)
        return True

    def _due_in_lanes(
        self, session: Session, pool: str, kinds: Sequence[str], by: tuple[int, int]
    ) -> int:
        """Count jobs of laned kinds that have permits; see `view.count_in_lanes`."""
        known = self._in_force
        whole = session.rows("whole_store_paused", now_ms=by[1])
        if not known.is_granted or whole:
            return 0
        return count_in_lanes(session, known.rules, pool, kinds, by)

    def _held_kinds(
        self, session: Session, kinds: Sequence[str], now_ms: int
    ) -> set[str]:
        """Return the laned kinds of which no job may begin now, whatever it is of."""
        rules = self._in_force.rules
        uses = {kind: rules.uses(kind, None, {}) for kind in kinds}
        needed = [use for of_kind in uses.values() for use in of_kind]
        seen = see(session, rules, needed, now_ms)
        return {
            kind
            for kind, of_kind in uses.items()
            for use in of_kind
            if shortage(seen[use.bucket].state, use.cost, now_ms) is not None
        }

    def _claim(
        self,
        session: OwnSession,
        by: tuple[str, int],
        laned: Kinds,
        *,
        slow_s: float,
    ) -> Claim | None:
        """Return a claim on lanes; None: no laned kind may be leased."""
        if not laned or not self._in_force.is_granted:
            return None
        rules = self._in_force.rules
        claim = Claim(session, rules, by, self._claims, laned, slow_s=slow_s)
        claim.take_turns()
        return claim

    def _held_suspects(
        self, session: Session, claim: Claim | None, laned: Kinds
    ) -> HeldSuspects:
        """Find which runnable suspects of laned kinds a quota holds back."""
        if not laned:
            return HeldSuspects()
        pairs = [(pool, kind) for pool, names in laned.items() for kind in names]
        held: list[int] = []
        allowed: dict[int, tuple[LaneState, float | None]] = {}
        for job_id, pool, kind, priority, tenant, text, lane in session.rows(
            "suspects_in_lanes", kinds=as_json(pairs), limit=SUSPECTS
        ):
            found: Allotment | None = None
            state = LaneState(lane or 0, pool, kind, priority, 0.0, ())
            if lane is not None and claim is not None:  # Else it is not stamped yet.
                values = values_from(text) or {}
                uses = self._in_force.rules.uses(
                    kind, tenant, values, again=is_again(lane)
                )
                state = state._replace(uses=uses)
                found = claim.look(state)
            if found is None or not found.most:
                held.append(job_id)
            else:
                allowed[job_id] = state, found.begin_within_s
        return HeldSuspects(held, allowed)


def _where(known: InForce, asked: Kinds, *, laned: bool) -> Kinds:
    """Return the kinds that are laned, or are not, without pools that have none."""
    rules = known.rules
    found = {
        pool: [kind for kind in names if rules.is_laned(pool, kind) is laned]
        for pool, names in asked.items()
    }
    return {pool: names for pool, names in found.items() if names}
