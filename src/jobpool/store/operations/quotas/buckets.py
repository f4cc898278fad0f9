"""Buckets that a transaction has locked, and what it takes of them.

Theory of operation. Two transactions that each held one bucket and waited for the
other's would wait for ever. So a transaction waits only once, for all that it then
needs, in the order of their ids; whatever it needs later it takes only if nobody holds
it. Buckets are made before the first is locked, for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jobpool.core.rules.quotas.allot import BucketState, cost_in, room_in
from jobpool.core.rules.quotas.breaker import Breaker, Change, Probe, reported
from jobpool.core.rules.quotas.budget import begun
from jobpool.core.rules.quotas.gcra import returned, settled, taken
from jobpool.core.rules.quotas.rules import FOREVER_MS, Rules, Use
from jobpool.core.rules.quotas.window import Window
from jobpool.errors import JobpoolBug
from jobpool.store.statements.limits import counted_from, encoded_counts
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.session import OwnSession, Query, Row

SWEEP_EVERY_MS = 1000
"""A bucket without room is compared with its leases at most as often."""
_KNOWN_MAX = 100_000
_NO_PROBE = Probe(0, 0)
"""A job that is charged, and has no token yet."""


class Charge(NamedTuple):
    """What a job takes of one bucket."""

    bucket: int
    cost: int
    held_from_us: int


class _Stored(NamedTuple):
    """A bucket's row."""

    id: int
    quota: str
    value: str
    tat_us: int
    block_until_ms: int
    contested: int
    checked_at_ms: int
    counts: str | None
    """JSON: its breaker, or its window."""


class Buckets:
    """The buckets of one transaction.

    Args:
        session: in a transaction.
        rules: what is in force.
        now_ms: the store's clock.
        known: ids of buckets that were there before; is added to.

    Attributes:
        states: what is locked, by id, as this transaction leaves it.
    """

    def __init__(
        self,
        session: OwnSession,
        rules: Rules,
        now_ms: int,
        known: set[int],
        *,
        slow_s: float = 0.0,
    ) -> None:
        self._slow_us = math.ceil(slow_s * 1e6)
        self._have_paid: set[int] = set()
        """Buckets that have paid for a slow answer."""
        self._session = session
        self._rules = rules
        self._now_ms = now_ms
        self._known = known
        self._rows: dict[int, _Stored] = {}
        self._changed: dict[int, _Stored] = {}
        self._has_locked = False
        self._probing: set[int] = set()
        """Buckets of which one job was charged, as the probe of their service."""
        self.states: dict[int, BucketState] = {}

    def lock(
        self,
        uses: Iterable[Use],
        also: Collection[int] = (),
        *,
        beside: Sequence[Query] = (),
    ) -> list[list[Row]]:
        """Lock buckets: the first call waits, later ones leave out what others hold.

        Args:
            uses: what is needed; a bucket that is missing is made.
            also: more buckets, by id, if they are there.
            beside: what is asked in the same round trip, once they are locked.

        Returns:
            The rows of what was asked beside.
        """
        costliest = sorted(uses, key=lambda use: use.cost)
        named = {use.bucket: use for use in costliest if use.bucket not in self.states}
        wanted = sorted({*named, *also} - self.states.keys())
        if not wanted:
            return self._session.ask(*beside) if beside else []
        name = "try_buckets" if self._has_locked else "lock_buckets"
        if not self._has_locked:
            self._make([use for use in named.values() if use.bucket not in self._known])
        counted = [one for one in wanted if one not in named or self._caps(named[one])]
        # In statements after the locks: no other claim can add any permit by then.
        rows, in_use, *answers = self._session.ask(
            (name, {"ids": as_json(wanted)}),
            ("permits_in_use", {"ids": as_json(counted)}),
            *beside,
        )
        gone = named.keys() - {row[0] for row in rows}
        if gone and not self._has_locked:  # Deleted since, or never committed.
            self._make([named[bucket] for bucket in gone])
            rows += self._session.rows(name, ids=as_json(sorted(gone)))
            in_use += self._in_use(gone).items()
        self._has_locked = True
        self._known.difference_update(wanted)  # Some may have been deleted.
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()
        self._known.update(row[0] for row in rows)
        self._read(rows, dict(in_use))
        self._sweep_full({row[0]: named.get(row[0]) for row in rows})
        return answers

    def lock_contested(self, limit: int) -> list[int]:
        """Lock, sweep and return the wanted buckets that were checked longest ago."""
        rows = self._session.rows(
            "contested_buckets", before_ms=self._now_ms - SWEEP_EVERY_MS, limit=limit
        )
        ids = [row[0] for row in rows]
        self._has_locked |= bool(ids)
        new = [row for row in rows if row[0] not in self.states]
        if ids:
            self._read(new, self._in_use([row[0] for row in new]))
            self._sweep(ids)
        return ids

    def has(self, uses: Iterable[Use]) -> bool:
        """Say whether all of these are locked."""
        return all(use.bucket in self.states for use in uses)

    def room(self, bucket: int) -> int:
        """Return how many permits of a locked bucket are free."""
        return room_in(self.states[bucket], self._now_ms)

    def is_budget(self, bucket: int) -> bool:
        """Say whether a locked bucket is a retry budget."""
        return self.states[bucket].limit.budget is not None

    def budgets(self) -> set[int]:
        """Return the locked buckets that are retry budgets."""
        return {bucket for bucket in self.states if self.is_budget(bucket)}

    def is_contested(self, bucket: int) -> bool:
        """Say whether lanes may wait for a bucket; False if it is not locked."""
        return bucket in self._rows and bool(self._latest(bucket).contested)

    def may_go_on(self, bucket: int) -> bool:
        """Say whether lanes that wait for a locked bucket should look again.

        Those that a time holds back should: then they wait for that time.
        """
        state = self.states[bucket]
        limit, cap = state.limit, state.limit.concurrency
        breaker = state.breaker.at(self._now_ms)
        is_full = cap is not None and state.in_use >= cap
        is_full |= limit.budget is not None and not self.room(bucket)
        is_full |= limit.breaker is not None and breaker.is_probed
        return not is_full and (limit.closed_until_ms or 0) < FOREVER_MS

    def short_of(self, uses: Sequence[Use]) -> int:
        """Return a locked bucket that has no permits for a job."""
        for use in uses:
            state = self.states[use.bucket]
            if self.room(use.bucket) < cost_in(state.limit, use.cost):
                return use.bucket
        raise JobpoolBug(f"nothing holds back what needs {uses}; please report this")

    def charge(self, uses: Iterable[Use], jobs: int = 1) -> list[Charge]:
        """Take the permits of some jobs, which have been allotted so many.

        Returns:
            What each of them takes. Of a budget nothing is held, it is only counted.
        """
        charges = []
        now_us = self._now_ms * 1000
        for use in uses:
            state = self.states[use.bucket]
            cost = cost_in(state.limit, use.cost)
            if state.limit.budget is not None:
                firsts, retries = (0, jobs) if use.cost else (jobs, 0)
                self._count(
                    use.bucket,
                    window=begun(
                        state.window, self._now_ms, firsts=firsts, retries=retries
                    ),
                )
                continue
            if (
                state.limit.breaker is not None
                and state.breaker.at(self._now_ms).wants_probe
            ):
                self._probing.add(use.bucket)
                state = state._replace(breaker=state.breaker.probed_by(_NO_PROBE))
            tat_us = state.tat_us
            if (pace := state.limit.pace) is not None:
                slow_us = 0 if use.bucket in self._have_paid else self._slow_us
                self._have_paid.add(use.bucket)
                tat_us = taken(pace, tat_us, now_us, cost * jobs, slow_us)
            self._change(use.bucket, tat_us=tat_us)
            self.states[use.bucket] = state._replace(
                in_use=state.in_use + cost * jobs, tat_us=tat_us
            )
            charges.append(Charge(use.bucket, cost, now_us))
        return charges

    def probe(self, bucket: int, token: int, job_id: int) -> None:
        """Note whose attempt a charged job is, if it is a service's probe."""
        if bucket in self._probing:
            self._probing.discard(bucket)
            breaker = self.states[bucket].breaker.at(self._now_ms)
            self._count(bucket, breaker=breaker.probed_by(Probe(token, job_id)))

    def report(
        self, bucket: int, counts: Mapping[int, tuple[int, int]]
    ) -> Change | None:
        """Count requests of a locked bucket, by token; return its breaker after that.

        None: nobody has published one.
        """
        state = self.states.get(bucket)
        if state is None or (rule := state.limit.breaker) is None:
            return None
        found = reported(state.breaker, rule, counts, self._now_ms)
        self._count(bucket, breaker=found.breaker)
        return found

    def refund(self, bucket: int, permits: int, held_us: int) -> None:
        """Give permits back to a rate."""
        state = self.states[bucket]
        if (pace := state.limit.pace) is None or not permits:
            return
        now_us = self._now_ms * 1000
        tat_us = returned(pace, state.tat_us, now_us, permits, held_us)
        self._change(bucket, tat_us=tat_us)
        self.states[bucket] = state._replace(tat_us=tat_us)

    def block(self, bucket: int, until_ms: int) -> None:
        """Give out nothing before a moment; never shortened."""
        state = self.states[bucket]
        if until_ms > state.block_until_ms:
            self._change(bucket, block_until_ms=until_ms)
            self.states[bucket] = state._replace(block_until_ms=until_ms)

    def refill(self, quota: str) -> bool:
        """Open all locked buckets of a quota; say whether any was not."""
        has_changed = False
        for bucket in [one.id for one in self._rows.values() if one.quota == quota]:
            row = self._latest(bucket)
            is_used = row.tat_us > 1000 * self._now_ms or row.counts is not None
            if is_used or row.block_until_ms > self._now_ms:
                has_changed = True
                self._change(bucket, tat_us=0, block_until_ms=0, counts=None)
                self.states[bucket] = self.states[bucket]._replace(
                    tat_us=0, block_until_ms=0, breaker=Breaker(), window=Window()
                )
        return has_changed

    def contest(self, bucket: int, *, is_wanted: bool) -> None:
        """Note whether lanes wait for a bucket."""
        if self._latest(bucket).contested != is_wanted:
            self._change(bucket, contested=int(is_wanted))

    def storing(self) -> list[Query]:
        """Return what writes down what has changed."""
        changed = [
            (one.id, *one[3:])
            for one in self._changed.values()
            if one != self._rows[one.id]
        ]
        return [("change_buckets", {"rows": as_json(changed)})] if changed else []

    def _make(self, missing: Iterable[Use]) -> None:
        rows = sorted((use.bucket, use.quota, use.value) for use in missing)
        if rows:
            self._session.run("make_buckets", rows=as_json(rows), now_ms=self._now_ms)

    def _caps(self, use: Use) -> bool:
        return self._rules.limit(use.quota, use.value).concurrency is not None

    def _in_use(self, ids: Collection[int]) -> dict[int, int]:
        """Count permits of locked buckets."""
        if not ids:
            return {}
        return dict(self._session.rows("permits_in_use", ids=as_json(ids)))

    def _read(self, rows: Iterable[Row], in_use: Mapping[int, int]) -> None:
        for one in (_Stored(*row) for row in rows):
            self._rows[one.id] = one
            limit, tat_us = self._rules.limit(one.quota, one.value), one.tat_us
            if limit.pace is not None:
                tat_us = settled(limit.pace, tat_us, self._now_ms * 1000)
            if tat_us != one.tat_us:  # The clock was set back, or the rate has changed.
                self._change(one.id, tat_us=tat_us)
            self.states[one.id] = BucketState(
                *(one.id, limit, in_use.get(one.id, 0), tat_us, one.block_until_ms),
                *counted_from(limit, one.counts),
            )

    def _sweep_full(self, uses: Mapping[int, Use | None]) -> None:
        """Look for dead permits where there is no room for what is needed, or none."""
        full = []
        for bucket, use in uses.items():
            state, row = self.states[bucket], self._rows[bucket]
            cap = state.limit.concurrency
            cost = 1 if use is None else cost_in(state.limit, use.cost)
            is_full = cap is not None and state.in_use + cost > cap
            if (is_full or _may_be_lost(state)) and abs(
                self._now_ms - row.checked_at_ms
            ) >= SWEEP_EVERY_MS:
                full.append(bucket)
        if full:
            self._sweep(full)

    def _sweep(self, ids: Collection[int]) -> None:
        """Drop permits of attempts that have ended, on whatever path."""
        swept = {i for (i,) in self._session.rows("sweep_permits", ids=as_json(ids))}
        in_use = self._in_use(swept)
        for bucket in ids:
            self._change(bucket, checked_at_ms=self._now_ms)
            if bucket in swept:
                state = self.states[bucket]
                self.states[bucket] = state._replace(in_use=in_use.get(bucket, 0))
        self._find_lost_probes(ids)

    def _find_lost_probes(self, ids: Collection[int]) -> None:
        """Look whether attempts that are to answer have ended, on whatever path."""
        asked = {
            bucket: probe
            for bucket in ids
            if _may_be_lost(self.states[bucket])
            and (probe := self.states[bucket].breaker.probe) is not None
        }
        if not asked:
            return
        rows = as_json((one.job_id, one.token) for one in asked.values())
        living = {token for (token,) in self._session.rows("living_probes", rows=rows)}
        for bucket, probe in asked.items():
            if probe.token not in living:
                missed = self.states[bucket].breaker.missed(self._now_ms)
                self._count(bucket, breaker=missed)

    def _count(self, bucket: int, **counts: Any) -> None:
        """Change a breaker or a window."""
        self.states[bucket] = self.states[bucket]._replace(**counts)
        self._change(bucket, counts=encoded_counts(self.states[bucket]))

    def _latest(self, bucket: int) -> _Stored:
        return self._changed.get(bucket) or self._rows[bucket]

    def _change(self, bucket: int, **columns: Any) -> None:
        self._changed[bucket] = self._latest(bucket)._replace(**columns)


def _may_be_lost(state: BucketState) -> bool:
    """Say whether a probe is on its way of which it is not known that it has ended."""
    return (
        state.limit.breaker is not None
        and state.breaker.is_probed
        and not state.breaker.until_ms
    )
