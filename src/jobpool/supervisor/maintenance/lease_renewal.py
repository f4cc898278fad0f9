"""The pulse: keeps a run's leases alive in a store that several hosts share.

Theory of operation. A thread with a store object (and so a connection) of its own:
neither a slow commit nor a swarm of settlements delays a renewal, and no renewal
delays them. It renews twice a second, however long the TTL, so that an outage costs
as much of the lease as it lasts. How long the leases are ours counts from before the
request was sent; the loop is told (`Renewed`), and ends what runs if it is not told
again in time. Between two renewals it listens for rings.

Monotonic time stands still while the machine is suspended, but leases run out. So
the clock that goes on is read as well, and what was slept is taken off.

It also knows what nobody else does: whether we could reach the store all the while.
After an outage of ours other runs may have expired only because they could not renew
either, and nobody must take their jobs until they have had time to come back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from jobpool.core import events as ev
from jobpool.core.clock import Clock
from jobpool.core.units import show_duration
from jobpool.errors import StoreError, StoreRefused
from jobpool.store.protocol import SharedStore, Store, is_shared
from jobpool.store.records import Renewal
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.fencing import margin_s, published_ttl_s

RENEW_EVERY_S = 0.5
RETRY_S = 0.2
"""Longest pause after a renewal that failed."""
ALARM_AFTER_S = 2.0
"""Renewals that fail for so long are said aloud."""
SUSPENDED_S = 0.1
"""The clocks of a machine that was never suspended drift apart less than this."""
OUTAGE_SHARE = 0.5
"""Without a renewal for this share of the TTL, others may soon not have any either."""
CLOSE_S = 2.0


class LeaseRenewal(threading.Thread):
    """Renews the leases, and listens.

    Args:
        run_id: whose leases.
        ttl_s: their nominal TTL; may be changed while it beats.
        opener: opens the store, in this thread.
        post: takes events for the loop; callable from any thread.
        rung: called when somebody has rung; callable from any thread.
        clock: all three clocks.
    """

    def __init__(
        self,
        run_id: str,
        ttl_s: float,
        *,
        opener: Callable[[], Store],
        post: Callable[[inp.SupervisorEvent | ev.Event], None],
        rung: Callable[[], None],
        clock: Clock,
    ) -> None:
        super().__init__(name="jobpool-renewal", daemon=True)
        self.ttl_s = ttl_s
        self._run_id = run_id
        self._opener = opener
        self._post = post
        self._rung = rung
        self._clock = clock
        self.move_fence: Callable[[float], None] = _nowhere
        """Told, as a time since boot, until when zygotes may let their children run."""
        self._closing = threading.Event()
        self._skew_s = self._skew()
        """How far the two clocks were apart at the last look."""
        self._until_s = 0.0
        self._renewed_s: float | None = None
        """When the last renewal succeeded, by the clock that always goes on."""
        self._steady_s: float | None = None
        """When renewals began to succeed again after an outage; None: never failed."""
        self._failing_s: float | None = None
        self._alarmed = False

    def begin(self, sent_s: float) -> inp.Renewed:
        """Start, once the run is in the store.

        Args:
            sent_s: monotonic time at which the request was sent that entered it.

        Returns:
            For how long it holds, for the loop to know before it leases anything.
        """
        ttl_s = published_ttl_s(self.ttl_s)
        entered = inp.Renewed(sent_s + ttl_s, ttl_s)
        self._until_s = entered.until_s
        self._publish()
        self.start()
        return entered

    def may_take(self) -> bool:
        """Say whether other runs' leases ran out for no fault of the store.

        No renewal of ours may be late, and since our last outage one whole TTL must
        have passed, in which the living have renewed. Callable from any thread.
        """
        renewed_s, steady_s = self._renewed_s, self._steady_s
        now_s = self._clock.boottime_s()
        if renewed_s is None or now_s - renewed_s > OUTAGE_SHARE * self.ttl_s:
            return False
        return steady_s is None or now_s - steady_s >= self.ttl_s

    def close(self) -> None:
        """Renew no more."""
        self._closing.set()

    # -- the thread's side ---------------------------------------------------------

    def run(self) -> None:
        """Renew and listen until closed, or until the run is over."""
        try:
            self._run()
        except BaseException as exc:
            self._post(inp.Stop(f"the pulse failed: {exc!r}"))
            raise

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                store = self._opener()
            except StoreRefused as exc:
                self._end(str(exc), "the store refuses")
                return
            except StoreError as exc:
                self._failed(exc)
                continue
            try:
                if not is_shared(store):
                    return
                self._renew_until_closed(store)
            finally:
                store.close()
            return

    def _renew_until_closed(self, store: SharedStore) -> None:
        next_s = self._clock.monotonic_s()
        while not self._closing.is_set():
            self._look_for_sleep()
            try:
                now_s = self._clock.monotonic_s()
                if now_s >= next_s:
                    next_s = now_s + RENEW_EVERY_S
                    if not self._renew(store):
                        return
                    now_s = self._clock.monotonic_s()
                if store.wait_for_wake(min(max(0.0, next_s - now_s), RENEW_EVERY_S)):
                    self._rung()
            except StoreRefused as exc:
                self._end(str(exc), "the store refuses")
                return
            except StoreError as exc:
                self._failed(exc)
                next_s = self._clock.monotonic_s()

    def _renew(self, store: SharedStore) -> bool:
        """Renew; False: there is nothing to renew any more."""
        ttl_s = published_ttl_s(self.ttl_s)
        sent_s, began_s = self._clock.monotonic_s(), self._clock.boottime_s()
        if sent_s + ttl_s < self._until_s:
            # The TTL was lowered. Even if no answer comes, it may hold from now on.
            self._until_s = sent_s + ttl_s
            self._announce(ttl_s)
        renewal = store.renew(self._run_id, ttl_s)
        if renewal is Renewal.LAPSED:
            # Perhaps the server's clock has jumped: then nobody's lease holds. The loop
            # is told first: whatever it is granted from now on, it hears of later.
            self._steady_s = self._clock.boottime_s()
            self._post(inp.Lapsed())
            sent_s, began_s = self._clock.monotonic_s(), self._clock.boottime_s()
            renewal = store.renew(self._run_id, ttl_s, anew=True)
        if self._closing.is_set():
            return False
        if renewal is Renewal.ENDED:
            self._end(
                "the store says that this run has ended: another supervisor took "
                "it for dead, or the database was restored; stopping",
                "its run was ended by somebody else",
            )
            return False
        self._note_success()
        # If the machine slept meanwhile, the store may have taken the request before.
        self._until_s = sent_s + ttl_s
        self._skew_s = began_s - sent_s
        self._announce(ttl_s)
        return True

    def _note_success(self) -> None:
        now_s = self._clock.boottime_s()
        before_s = self._renewed_s
        if before_s is not None and now_s - before_s > OUTAGE_SHARE * self.ttl_s:
            self._steady_s = now_s
        self._renewed_s = now_s
        self._failing_s = None
        self._alarmed = False

    def _look_for_sleep(self) -> None:
        """Take what the machine has slept off the time that the leases hold."""
        skew_s = self._skew()
        slept_s = skew_s - self._skew_s
        if slept_s < SUSPENDED_S or self._renewed_s is None:
            return
        self._skew_s = skew_s
        self._until_s -= slept_s
        self._announce(published_ttl_s(self.ttl_s))

    def _announce(self, ttl_s: float) -> None:
        """Tell the zygotes, and the loop, until when the leases hold.

        In this order: they end at once what the loop makes when it is told.
        """
        self._publish()
        self._post(inp.Renewed(self._until_s, ttl_s))

    def _publish(self) -> None:
        left_s = self._until_s - self._clock.monotonic_s()
        ahead_s = margin_s(published_ttl_s(self.ttl_s)) / 2
        self.move_fence(self._clock.boottime_s() + left_s - ahead_s)

    def _skew(self) -> float:
        return self._clock.boottime_s() - self._clock.monotonic_s()

    def _failed(self, error: StoreError) -> None:
        """Say it when it lasts; try again soon, but not all hosts at once."""
        now_s = self._clock.monotonic_s()
        if self._failing_s is None:
            self._failing_s = now_s
        if not self._alarmed and now_s - self._failing_s >= ALARM_AFTER_S:
            self._alarmed = True
            left = show_duration(round(max(0.0, self._until_s - now_s), 1))
            self._alarm(
                f"the leases cannot be renewed, and hold for {left} more; what runs "
                f"is ended before they do not: {error}"
            )
        pause_s = RETRY_S * random.uniform(0.25, 1.0)  # noqa: S311 - apart, not secret
        self._closing.wait(pause_s)

    def _end(self, text: str, reason: str) -> None:
        """Say why this run is over, and stop."""
        self._alarm(text)
        self._post(inp.Stop(reason))

    def _alarm(self, text: str) -> None:
        self._post(ev.Alarm(at_ms=self._clock.utc_ms(), text=text))


def _nowhere(_until_s: float) -> None:
    """Tell nobody."""
