"""Lease renewal: keeps a run's leases alive in a store that several hosts share.

Theory of operation. A thread with a store object (and so a connection) of its own:
neither a slow commit nor a burst of settlements delays a renewal, and no renewal delays
them. It renews twice a second, whatever the TTL, so that an outage costs as much of the
lease as it lasts. How long the leases are ours counts from before the request was sent;
the loop is notified (`Renewed`), and ends what runs unless it is notified again in
time. Between two renewals the thread waits for wake-ups.

Monotonic time stands still while the machine is suspended, but leases run out. So the
clock that goes on is read as well, and the time slept is subtracted.

It also knows whether we could reach the store all the while. After an outage of ours,
other runs may have expired only because they could not renew either, and their jobs
must not be taken until they have had time to come back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import Alarm
from jobpool.core.units import show_duration
from jobpool.errors import StoreError, StoreRefused, StoreWentBack
from jobpool.store.contract.watermark import Watermark
from jobpool.store.protocol import SharedStore, Store, is_shared
from jobpool.store.records.runs import Renewal
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.fencing import margin_s, published_ttl_s

RENEW_EVERY_S = 0.5
RETRY_S = 0.2
"""Longest pause after a renewal that failed."""
ALARM_AFTER_S = 2.0
"""Renewals that fail for this long raise an alarm."""
SUSPENDED_S = 0.1
"""The clocks of a machine that was never suspended drift apart less than this."""
OUTAGE_SHARE = 0.5
"""After this share of the TTL without a renewal, other runs may have none either."""
CLOSE_S = 2.0


class LeaseRenewal(threading.Thread):
    """Renews the leases, and waits for wake-ups.

    Args:
        run_id: whose leases.
        ttl_s: their nominal TTL; may be changed while the thread runs.
        opener: opens the store, in this thread.
        post: takes events for the loop; callable from any thread.
        on_wake: called at each wake-up; callable from any thread.
        known: what must be in the store.
        lost: called if it is not; callable from any thread.
        clock: all three clocks.
    """

    def __init__(
        self,
        run_id: str,
        ttl_s: float,
        *,
        opener: Callable[[], Store],
        post: Callable[[inp.SupervisorEvent | Event], None],
        on_wake: Callable[[], None],
        known: Watermark,
        lost: Callable[[StoreWentBack], None],
        clock: Clock,
    ) -> None:
        super().__init__(name="jobpool-renewal", daemon=True)
        self.ttl_s = ttl_s
        self._run_id = run_id
        self._opener = opener
        self._post = post
        self._on_wake = on_wake
        self._known = known
        self._lost = lost
        self._clock = clock
        self.move_fence: Callable[[float], None] = _nowhere
        """Called with the time since boot until which zygotes may let children run."""
        self._closing = threading.Event()
        self._skew_s = self._skew()
        """How far the two clocks were apart at the last check."""
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
            sent_s: monotonic time at which the request that entered it was sent.

        Returns:
            Until when its leases hold; the loop needs it before it leases anything.
        """
        ttl_s = published_ttl_s(self.ttl_s)
        entered = inp.Renewed(sent_s + ttl_s, ttl_s)
        self._until_s = entered.until_s
        self._publish()
        self.start()
        return entered

    def may_take(self) -> bool:
        """Say whether other runs' leases expired, and not because of the store.

        No renewal of ours may be late, and since our last outage one whole TTL must
        have passed, in which living runs have renewed. Callable from any thread.
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
        """Renew until closed, or until the run is over."""
        try:
            self._run()
        except BaseException as exc:
            self._post(inp.Stop(f"lease renewal failed: {exc!r}"))
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
            self._subtract_sleep()
            try:
                now_s = self._clock.monotonic_s()
                if now_s >= next_s:
                    next_s = now_s + RENEW_EVERY_S
                    if not self._renew(store):
                        return
                    now_s = self._clock.monotonic_s()
                if store.wait_for_wake(min(max(0.0, next_s - now_s), RENEW_EVERY_S)):
                    self._on_wake()
            except StoreWentBack as exc:
                self._lost(exc)
                return
            except StoreRefused as exc:
                self._end(str(exc), "the store refuses")
                return
            except StoreError as exc:
                self._failed(exc)
                next_s = self._clock.monotonic_s()

    def _renew(self, store: SharedStore) -> bool:
        """Renew; False: the run is over."""
        ttl_s = published_ttl_s(self.ttl_s)
        began_s, sent_s = self._now()
        if sent_s + ttl_s < self._until_s:
            # The TTL was lowered. Even without an answer, it may be in force already.
            self._until_s = sent_s + ttl_s
            self._announce(ttl_s)
        renewal = store.renew(self._run_id, ttl_s, known=self._known)
        if renewal is Renewal.LAPSED:
            # Perhaps the server's clock has jumped: then no run's lease holds. The loop
            # is notified first: whatever is granted from now on reaches it later.
            self._steady_s = self._clock.boottime_s()
            self._post(inp.Lapsed())
            began_s, sent_s = self._now()
            renewal = store.renew(self._run_id, ttl_s, anew=True, known=self._known)
        if self._closing.is_set():
            return False
        if renewal is Renewal.ENDED:
            self._end(
                "the store says that this run has ended: another supervisor took "
                "it for dead, or the database was restored; stopping",
                "its run was ended from outside",
            )
            return False
        self._note_success()
        # If the machine slept meanwhile, the store may have got the request before.
        self._until_s = sent_s + ttl_s
        self._skew_s = began_s - sent_s
        self._announce(ttl_s)
        if renewal is Renewal.OUTDATED:
            self._post(inp.Outdated())
        return True

    def _note_success(self) -> None:
        now_s = self._clock.boottime_s()
        before_s = self._renewed_s
        if before_s is not None and now_s - before_s > OUTAGE_SHARE * self.ttl_s:
            self._steady_s = now_s
        self._renewed_s = now_s
        self._failing_s = None
        self._alarmed = False

    def _subtract_sleep(self) -> None:
        """Subtract the time that the machine has slept from that of the leases."""
        skew_s = self._skew()
        slept_s = skew_s - self._skew_s
        if slept_s < SUSPENDED_S or self._renewed_s is None:
            return
        self._skew_s = skew_s
        self._until_s -= slept_s
        self._announce(published_ttl_s(self.ttl_s))

    def _announce(self, ttl_s: float) -> None:
        """Tell the zygotes, then the loop, until when the leases hold.

        In this order: zygotes kill at once what the loop starts after it is notified.
        """
        self._publish()
        self._post(inp.Renewed(self._until_s, ttl_s))

    def _publish(self) -> None:
        booted_s, now_s = self._now()
        ahead_s = margin_s(published_ttl_s(self.ttl_s)) / 2
        self.move_fence(booted_s + self._until_s - now_s - ahead_s)

    def _skew(self) -> float:
        booted_s, now_s = self._now()
        return booted_s - now_s

    def _now(self) -> tuple[float, float]:
        """Return the time since boot, then the monotonic time.

        In this order: a stop in between makes leases end earlier for us, never later.
        """
        booted_s = self._clock.boottime_s()
        return booted_s, self._clock.monotonic_s()

    def _failed(self, error: StoreError) -> None:
        """Raise an alarm if it lasts; try again soon, but not all hosts at once."""
        now_s = self._clock.monotonic_s()
        if self._failing_s is None:
            self._failing_s = now_s
        if not self._alarmed and now_s - self._failing_s >= ALARM_AFTER_S:
            self._alarmed = True
            left = show_duration(round(max(0.0, self._until_s - now_s), 1))
            self._alarm(
                f"the leases cannot be renewed, and hold for {left} more; running "
                f"jobs are ended before they run out: {error}"
            )
        pause_s = RETRY_S * random.uniform(0.25, 1.0)  # noqa: S311 - apart, not secret
        self._closing.wait(pause_s)

    def _end(self, text: str, reason: str) -> None:
        """Report why this run is over, and stop."""
        self._alarm(text)
        self._post(inp.Stop(reason))

    def _alarm(self, text: str) -> None:
        self._post(Alarm(at_ms=self._clock.utc_ms(), text=text))


def _nowhere(_until_s: float) -> None:
    """Do nothing: there is no fence."""
