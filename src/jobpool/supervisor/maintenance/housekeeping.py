"""Housekeeping: regular chores such as cancellations, pruning and sampling the host.

They are left with the store thread and run between its commits; a thread of their own
only watches the clock.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from jobpool.core.clock import Clock
from jobpool.core.config.settings import MemoryAdmission, ScaleOn, Settings
from jobpool.core.events.supervisor import (
    Alarm,
    StoreConcern,
    UnknownKind,
    UnknownKinds,
)
from jobpool.core.rules.run_report import HostReport
from jobpool.core.rules.usage.sketch import Measure, quantile
from jobpool.errors import StoreUnavailable
from jobpool.store.protocol import Store
from jobpool.store.records.reading import merged
from jobpool.store.records.runs import Renewal
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.state.usage import Usage
from jobpool.supervisor.machine.state.usual_memory import bound_bytes
from jobpool.supervisor.maintenance.other_pools import LOOK_EVERY_S, OtherPools
from jobpool.supervisor.maintenance.pruning import Pruning
from jobpool.supervisor.maintenance.ticking import (
    AT_ONCE_S,
    PUBLISH_EVERY_S,
    TICK_EVERY_S,
    Ticking,
)
from jobpool.supervisor.storage.inbox import Chore, Posts
from jobpool.supervisor.storage.thread import StoreThread

RENEW_SHARE = 3
"""Renewals of a lease within its TTL, in a store without lease renewal of its own."""
CANCELS_EVERY_S = 0.5
AFTER_WAKE_S = 0.01
"""A wake-up is nearly always for a new job, which is leased meanwhile."""
HOST_EVERY_S = 1.0
REPORT_EVERY_S = 5.0
"""As often the host is looked at if nothing depends on that but the report."""
WAITS_EVERY_S = 10.0
WAITS_SHARE = 0.01
"""At most this share of the time goes into sampling what jobs wait for, or use."""
USUAL_EVERY_S = 60.0
USUAL_SHARE = 0.99
"""Of a kind's attempts need no more than what is called usual."""
USUAL_LEAST = 20
"""Fewer attempts tell nothing."""
UNKNOWN_EVERY_S = 60.0
DUE_MAX = 1000
CONCERNS_EVERY_S = 60.0
FORMATS_EVERY_S = 2.0
"""How soon a feature can be used after the last supervisor without it has ended."""
BREAKERS_EVERY_S = 5.0
PRUNE_EVERY_S = 30.0
USAGE_EVERY_S = 30.0
USAGE_ROWS = 2000
"""Most rows of one statement."""
FOLD_EVERY_S = 1.0
"""How soon a flow goes on while nobody here asks for jobs; a lease folds as well."""
RELEASE_EVERY_S = 2.0
"""How soon a job goes on that waits for one whose end has missed it."""
SCRUB_EVERY_S = 10.0
"""A few hundred rows each time: 500 take 5 ms."""
CONCERN_AGAIN_S = 600.0
"""The same concern is not reported more often."""
_FIGURES = re.compile(r"\d+")


@dataclass(slots=True)
class _Turn:
    """A chore and when it is next due."""

    chore: Chore
    every_s: float
    next_s: float


class Housekeeping(threading.Thread):
    """Leaves each chore with the store thread when its time has come.

    Args:
        settings: retention and lease time.
        run_id: this supervisor's run.
        store: does the chores; must have been opened.
        usage: what ended attempts have used.
        ticking: keeps schedules.
        other_pools: finds jobs that are not in their kind's own pool.
        look: looks at the host.
        clock: for durations and the times of events.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        *,
        store: StoreThread,
        usage: Usage,
        ticking: Ticking,
        other_pools: OtherPools,
        look: Callable[[], HostReport],
        clock: Clock,
    ) -> None:
        super().__init__(name="jobpool-housekeeping", daemon=True)
        self.settings = settings
        self._run_id = run_id
        self._store = store
        self._usage = usage
        self._ticking = ticking
        self._look = look
        self._clock = clock
        self._closing = threading.Event()
        self._woken = threading.Event()
        """A wake-up has come, or this is the end."""
        self._concern_reported_s: dict[str, float] = {}
        self._scrubbed_to: int | None = None
        self._seen = inp.BreakersSeen((), 0)
        """The circuit breakers as last read from the store."""
        self._pruning = Pruning(clock)
        self._prunes = self._turn(self._prune, PRUNE_EVERY_S)
        self._canceling = self._turn(self._cancels, CANCELS_EVERY_S)
        self._ticks = self._turn(self._tick, TICK_EVERY_S)
        self._folds = self._turn(self._fold, FOLD_EVERY_S)
        self._turns = [
            self._canceling,
            self._ticks,
            self._folds,
            self._turn(ticking.publish, PUBLISH_EVERY_S, first_s=PUBLISH_EVERY_S),
            self._prunes,
            self._turn(other_pools.look, LOOK_EVERY_S),
            self._turn(self._unknown, UNKNOWN_EVERY_S, first_s=2.0),
            self._turn(self._breakers, BREAKERS_EVERY_S),
            self._turn(self._formats, FORMATS_EVERY_S),
            self._turn(self._concerns, CONCERNS_EVERY_S, first_s=CONCERNS_EVERY_S / 2),
            self._turn(self.write_usage, USAGE_EVERY_S, first_s=USAGE_EVERY_S),
            self._turn(self._release, RELEASE_EVERY_S, first_s=RELEASE_EVERY_S),
            self._turn(self._scrub, SCRUB_EVERY_S, first_s=SCRUB_EVERY_S / 10),
        ]
        if not store.shared:
            every_s = settings.lease_ttl_s / RENEW_SHARE
            self._turns.insert(0, self._turn(self._renew, every_s))
        ranged = [pool for pool in settings.pools if pool.size_min != pool.size_max]
        self._ranged = {pool.name for pool in ranged}
        self._usual_bytes: dict[str, int] = {}
        self._usual_of_kinds: dict[tuple[str, str], int] = {}
        scales = any(pool.scale_on is ScaleOn.MEMORY for pool in ranged)
        counts = settings.memory_budget_bytes is not None
        self._usually = self._turn(self._usual, USUAL_EVERY_S)
        if scales or (counts and settings.memory_admission is MemoryAdmission.OBSERVED):
            self._turns.append(self._usually)  # before the first look at the host
        host_every_s = HOST_EVERY_S if ranged else REPORT_EVERY_S
        self._turns.append(self._turn(self._host, host_every_s))
        self._sampling = self._turn(self._sample_waits, WAITS_EVERY_S, WAITS_EVERY_S)
        self._turns.append(self._sampling)

    def run(self) -> None:
        """Leave chores until closed."""
        while True:
            now_s = self._clock.monotonic_s()
            for turn in self._turns:
                if turn.next_s <= now_s:
                    turn.next_s = now_s + turn.every_s
                    self._store.chore(turn.chore)
            wait_s = min(turn.next_s for turn in self._turns) - now_s
            if self._woken.wait(max(wait_s, 0.0)):
                self._woken.clear()
                if self._closing.wait(AFTER_WAKE_S):
                    return
                self._canceling.next_s = 0.0

    def check_cancels(self) -> None:
        """Check soon: a wake-up may be for a cancellation. For any thread."""
        self._woken.set()

    def write_usage(self, store: Store) -> Posts:
        """Write what ended attempts have used; a chore, also for the end.

        A supervisor that is killed loses what it has not written.
        """
        while rows := self._usage.take(USAGE_ROWS):
            try:
                store.add_sketches(rows)
            except StoreUnavailable:
                self._usage.put_back(rows)
                raise
        return ()

    def close(self) -> None:
        """Leave no more chores."""
        self._closing.set()
        self._woken.set()

    def _turn(
        self, chore: Callable[[Store], Posts], every_s: float, first_s: float = 0.0
    ) -> _Turn:
        return _Turn(chore, every_s, self._clock.monotonic_s() + first_s)

    def _renew(self, store: Store) -> Posts:
        ttl_s = self.settings.lease_ttl_s
        known = self._store.known
        renewal = store.renew(self._run_id, ttl_s, anew=True, known=known)
        if renewal is Renewal.OUTDATED:
            return (inp.Outdated(),)
        if renewal is not Renewal.ENDED:
            return ()
        return (
            inp.Stop("its run was ended from outside"),
            Alarm(
                at_ms=self._clock.utc_ms(),
                text="the store says that this run has ended: another supervisor took "
                "it for dead, or the database was restored; stopping",
            ),
        )

    def _cancels(self, store: Store) -> Posts:
        tokens = store.cancel_requests(self._run_id)
        posts: Posts = (inp.CancelAsked(tuple(tokens)),) if tokens else ()
        if self._seen.rows or self._seen.saves != self._store.saves:
            # While a kind is held, the wake-up may be for `jobpool resume --kind`.
            posts = (*posts, *self._breakers(store))
        return posts

    def _prune(self, store: Store) -> Posts:
        pause_s = self._pruning.step(store, self.settings.retention)
        if pause_s is not None:
            self._prunes.next_s = self._clock.monotonic_s() + pause_s
            self._woken.set()  # The thread waits for a later moment.
        return ()

    def _tick(self, store: Store) -> Posts:
        posts, pause_s = self._ticking.tick(store)
        if pause_s <= AT_ONCE_S:
            self._store.chore(self._tick)  # After whatever else has come meanwhile.
        elif pause_s < TICK_EVERY_S:
            self._ticks.next_s = self._clock.monotonic_s() + pause_s
            self._woken.set()  # The thread waits for a later moment.
        return posts

    def _fold(self, store: Store) -> Posts:
        folded = store.fold()
        if folded.opened:
            store.wake()
        if folded.is_short:
            # Not at once: it may be what another host is folding.
            self._folds.next_s = self._clock.monotonic_s() + AT_ONCE_S
            self._woken.set()  # The thread waits for a later moment.
        return ()

    def _unknown(self, store: Store) -> Posts:
        known: Mapping[str, Sequence[str]] = self._store.kinds
        unknown = tuple(
            UnknownKind(row.kind, row.jobs, row.oldest_age_s)
            for row in store.waiting()
            if row.pool in known and row.kind not in known[row.pool]
        )
        if not unknown:
            return ()
        return (UnknownKinds(at_ms=self._clock.utc_ms(), kinds=unknown),)

    def _breakers(self, store: Store) -> Posts:
        self._seen = inp.BreakersSeen(tuple(store.breakers()), self._store.saves)
        return (self._seen,)

    def _formats(self, store: Store) -> Posts:
        store.grant_format()
        return ()

    def _release(self, store: Store) -> Posts:
        store.release_followers()
        return ()

    def _scrub(self, store: Store) -> Posts:
        self._scrubbed_to = store.scrub(self._scrubbed_to)
        return ()

    def _concerns(self, store: Store) -> Posts:
        now_s = self._clock.monotonic_s()
        events = []
        for text in store.concerns():
            # Its figures change from check to check: it is the same concern.
            about = _FIGURES.sub("#", text)
            if now_s - self._concern_reported_s.get(about, -inf) >= CONCERN_AGAIN_S:
                self._concern_reported_s[about] = now_s
                events.append(StoreConcern(at_ms=self._clock.utc_ms(), text=text))
        return events

    def _host(self, store: Store) -> Posts:
        kinds = self._store.kinds
        ranged = {pool: kinds[pool] for pool in self._ranged if pool in kinds}
        aging = {
            pool.name: ranged[pool.name]
            for pool in self.settings.pools
            if pool.scale_on is ScaleOn.AGE and pool.name in ranged
        }
        return (
            inp.HostSeen(
                due=store.due(ranged, DUE_MAX) if ranged else {},
                oldest_s=store.oldest_due(aging) if aging else {},
                usual_bytes=self._usual_bytes,
                usual_of_kinds=self._usual_of_kinds,
                host=self._look(),
                store=self._store.commits.added_to(store.load()),
            ),
        )

    def _sample_waits(self, store: Store) -> Posts:
        """Sample what jobs wait for; the longer it takes, the more rarely."""
        began_s, turn = self._clock.monotonic_s(), self._sampling
        store.sample_waits(turn.every_s)
        took_s = self._clock.monotonic_s() - began_s
        turn.every_s = max(WAITS_EVERY_S, took_s / WAITS_SHARE)
        return ()

    def _usual(self, store: Store) -> Posts:
        """Find out what attempts use; the longer it takes, the more rarely.

        By kind and pool; and by pool: that of the kind that uses most.
        """
        began_s = self._clock.monotonic_s()
        usual: dict[str, int] = {}
        of_kinds: dict[tuple[str, str], int] = {}
        kinds = self._store.kinds
        sketches = merged(
            row
            for row in store.sketches()
            if row.measure is Measure.MEMORY and row.pool in kinds
        )
        for (kind, pool, _), buckets in sketches.items():
            if (bound := bound_bytes(buckets)) is not None:
                of_kinds[kind, pool] = bound
            found = quantile(buckets, USUAL_SHARE)
            if found and sum(one.attempts for one in buckets.values()) >= USUAL_LEAST:
                usual[pool] = max(usual.get(pool, 0), round(found.value))
        self._usual_bytes, self._usual_of_kinds = usual, of_kinds
        took_s = self._clock.monotonic_s() - began_s
        self._usually.every_s = max(USUAL_EVERY_S, took_s / WAITS_SHARE)
        return ()
