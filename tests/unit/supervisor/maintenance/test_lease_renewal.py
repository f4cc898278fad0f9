"""Lease renewal: in time, on its own connection, and what its answers mean."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.events.supervisor import Alarm
from jobpool.errors import StoreRefused, StoreUnavailable, StoreWentBack
from jobpool.store.contract.watermark import Watermark
from jobpool.store.records.runs import Renewal
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.fencing import LEASE_EXTRA_S, margin_s
from jobpool.supervisor.maintenance import lease_renewal
from jobpool.supervisor.maintenance.lease_renewal import (
    ALARM_AFTER_S,
    RENEW_EVERY_S,
    LeaseRenewal,
)
from support.waiting import wait_until

PATIENCE_S = 30.0
QUICKLY_S = 0.1
"""Between two renewals, where how often they come does not matter."""
TTL_S = 8.0
PUBLISHED_S = TTL_S + LEASE_EXTRA_S


class FakeStore:
    """A shared store that renews as it is told."""

    one_host = False

    def __init__(self, clocks: Clocks) -> None:
        self.clocks = clocks
        self.answers: list[Renewal | Exception] = []
        self.failing: Exception | None = None
        self.ttls: list[float] = []
        self.on_anew: Callable[[], None] = lambda: None
        self.renewals = 0
        self.wakes = threading.Semaphore(0)
        self.closed = False

    def renew(
        self, _run_id: str, ttl_s: float, *, anew: bool = False, known: Watermark
    ) -> Renewal:
        if self.failing is not None:
            raise self.failing
        if anew:
            self.on_anew()
        answer = self.answers.pop(0) if self.answers else Renewal.HELD
        if isinstance(answer, Exception):
            raise answer
        self.ttls.append(ttl_s)
        self.renewals += 1
        return answer

    def wait_for_wake(self, timeout_s: float) -> bool:
        if self.failing is not None:
            raise self.failing
        if self.wakes.acquire(timeout=timeout_s):
            return True
        self.clocks.advance(timeout_s)
        return False

    def close(self) -> None:
        self.closed = True


class Clocks:
    """Clocks that a test may set apart; they go on only by waits that are over.

    So a machine that is busy for seconds costs no lease anything.
    """

    def __init__(self) -> None:
        self.slept_s = 0.0
        self._passed_s = 1000.0
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._passed_s += seconds

    def utc_ms(self) -> int:
        return round(self._passed_s * 1000)

    def monotonic_s(self) -> float:
        return self._passed_s

    def boottime_s(self) -> float:
        return self._passed_s + self.slept_s


class Closing(threading.Event):
    """Waits for the end, by which time passes."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self._clocks = clocks

    def wait(self, timeout: float | None = None) -> bool:
        if super().wait(timeout):
            return True
        self._clocks.advance(timeout or 0.0)
        return False


class Rig:
    """A lease renewal, its store, and what it posted."""

    def __init__(self) -> None:
        self.clocks = Clocks()
        self.store = FakeStore(self.clocks)
        self.posted: list[object] = []
        self.lost: list[StoreWentBack] = []
        self.wakes = 0
        self.opens: list[Exception] = []
        self.pulse = LeaseRenewal(
            "run",
            TTL_S,
            opener=self._open,
            post=self.posted.append,
            on_wake=self._woken,
            known=Watermark("run"),
            lost=self.lost.append,
            clock=self.clocks,
        )
        self.pulse._closing = Closing(self.clocks)

    def _open(self) -> FakeStore:
        if self.opens:
            raise self.opens.pop(0)
        return self.store

    def _woken(self) -> None:
        self.wakes += 1

    def begin(self) -> Rig:
        """Start, and wait for the first renewal."""
        self.pulse.begin(self.clocks.monotonic_s())
        self.wait_posted(inp.Renewed)
        return self

    def wait_renewed(self, more: int = 1) -> None:
        """Wait for so many more reported renewals."""
        before = len(self.of(inp.Renewed))
        wait_until(
            lambda: len(self.of(inp.Renewed)) >= before + more, PATIENCE_S, "a renewal"
        )

    def wait_posted(self, kind: type) -> object:
        """Wait for something of a class and return it."""
        return wait_until(lambda: self.of(kind), PATIENCE_S, kind.__name__)[-1]

    def of(self, kind: type) -> list:
        """Return what was posted of a class."""
        return [one for one in list(self.posted) if isinstance(one, kind)]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(lease_renewal, "RENEW_EVERY_S", QUICKLY_S)
    rig = Rig()
    yield rig
    rig.pulse.close()
    if rig.pulse.ident is not None:
        rig.pulse.join(PATIENCE_S)
        assert not rig.pulse.is_alive()


def test_the_deadline_follows_from_the_request_and_the_published_ttl(rig: Rig) -> None:
    """The lease is published slightly longer than its TTL, from before the request."""
    before_s = rig.clocks.monotonic_s()
    first = rig.pulse.begin(before_s)
    assert first == inp.Renewed(before_s + PUBLISHED_S, PUBLISHED_S)
    rig.wait_posted(inp.Renewed)
    after_s = rig.clocks.monotonic_s()
    event = rig.of(inp.Renewed)[0]
    assert before_s + PUBLISHED_S <= event.until_s <= after_s + PUBLISHED_S
    assert set(rig.store.ttls) == {PUBLISHED_S}


def test_leases_are_renewed_twice_a_second_whatever_the_ttl(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage uses up as much of a lease as it lasts."""
    monkeypatch.setattr(lease_renewal, "RENEW_EVERY_S", RENEW_EVERY_S)
    rig.begin()
    rig.wait_renewed(3)
    untils_s = [one.until_s for one in rig.of(inp.Renewed)]
    pauses_s = [later - one for one, later in pairwise(untils_s)]
    assert pauses_s == [pytest.approx(0.5)] * len(pauses_s)


def test_wake_ups_are_passed_on_between_renewals(rig: Rig) -> None:
    """A wake-up is passed on, and no renewal waits for it or is skipped for it."""
    rig.begin()
    for _ in range(3):
        rig.store.wakes.release()
    wait_until(lambda: rig.wakes == 3, PATIENCE_S, "three wake-ups")
    rig.wait_renewed()


def test_an_outage_is_retried_soon_and_reported_if_it_lasts(rig: Rig) -> None:
    """After the outage the next renewal comes soon; the alarm comes once."""
    rig.begin()
    rig.store.failing = StoreUnavailable("no route to it")
    failing_s = wait_until(lambda: rig.pulse._failing_s, PATIENCE_S, "a failure")
    rig.clocks.advance(ALARM_AFTER_S)
    alarm = rig.wait_posted(Alarm)
    assert alarm.at_ms >= round((failing_s + ALARM_AFTER_S) * 1000)
    assert "no route to it" in alarm.text
    count, back_s = len(rig.of(inp.Renewed)), rig.clocks.monotonic_s()
    rig.store.failing = None
    rig.wait_renewed()
    assert rig.of(inp.Renewed)[count].until_s - PUBLISHED_S - back_s < 1.0
    assert len(rig.of(Alarm)) == 1


def test_a_lapse_is_reported_before_the_renewal(rig: Rig) -> None:
    """Running attempts must be ended before anything new begins or is even granted."""
    rig.begin()
    reported: list[bool] = []
    rig.store.on_anew = lambda: reported.append(bool(rig.of(inp.Lapsed)))
    rig.store.answers = [Renewal.LAPSED, Renewal.LAPSED]
    rig.wait_posted(inp.Lapsed)
    rig.wait_renewed()
    place = next(i for i, one in enumerate(rig.posted) if isinstance(one, inp.Lapsed))
    assert isinstance(rig.posted[place + 1], inp.Renewed)
    assert reported == [True]
    assert len(rig.of(inp.Lapsed)) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Renewal.ENDED, "this run has ended"),
        (StoreRefused("unknown here"), "unknown here"),
    ],
)
def test_an_ended_run_stops_the_supervisor(
    rig: Rig, answer: object, words: str
) -> None:
    """The run has been ended, or this is another database: stop, and say why."""
    rig.begin()
    rig.store.answers = [answer]
    rig.wait_posted(inp.Stop)
    assert words in rig.wait_posted(Alarm).text
    rig.pulse.join(PATIENCE_S)
    assert rig.store.closed


def test_a_store_that_cannot_be_opened_yet_is_opened_later(rig: Rig) -> None:
    """Renewal does not give up before its lease has expired."""
    rig.opens = [StoreUnavailable("too many connections")] * 3
    rig.begin()
    assert rig.store.renewals >= 1


def test_time_asleep_is_subtracted_from_the_lease(rig: Rig) -> None:
    """Monotonic time stands still in a suspended machine, the lease does not."""
    rig.begin()
    first = rig.of(inp.Renewed)[0]
    rig.store.failing = StoreUnavailable("not awake yet")
    rig.clocks.slept_s = 30.0
    event = wait_until(
        lambda: [e for e in rig.of(inp.Renewed) if e.until_s < first.until_s],
        PATIENCE_S,
        "an earlier deadline",
    )[0]
    assert event.until_s < rig.clocks.monotonic_s()
    count = len(rig.of(inp.Renewed))
    rig.store.failing = None
    rig.wait_renewed()
    assert rig.of(inp.Renewed)[count].until_s > rig.clocks.monotonic_s()


def test_a_bug_stops_the_supervisor(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that fails for an unknown reason is not silently ignored."""
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    rig.begin()
    rig.store.answers = [ValueError("a bug")]
    assert "a bug" in rig.wait_posted(inp.Stop).reason


def test_other_runs_are_taken_over_only_after_steady_renewals(rig: Rig) -> None:
    """After an outage of ours one TTL passes before any run is presumed dead."""
    assert not rig.pulse.may_take()
    rig.begin()
    assert rig.pulse.may_take()
    rig.store.failing = StoreUnavailable("away")
    rig.clocks.advance(TTL_S)
    assert not rig.pulse.may_take()
    rig.store.failing = None
    rig.wait_renewed(2)
    assert not rig.pulse.may_take()
    for _ in range(5):
        rig.clocks.advance(0.2 * TTL_S)
        rig.wait_renewed(2)
    assert rig.pulse.may_take()


def test_a_lower_ttl_counts_before_it_is_published(rig: Rig) -> None:
    """Its answer may be lost although the store already uses it."""
    rig.begin()
    rig.wait_renewed()
    rig.store.failing = StoreUnavailable("away")
    rig.pulse.ttl_s = 2.0

    def told() -> list[inp.Renewed]:
        lower_s = 2.0 + LEASE_EXTRA_S
        return [one for one in rig.of(inp.Renewed) if one.ttl_s == lower_s]

    reported = wait_until(told, PATIENCE_S, "told of it")[0]
    assert reported.until_s <= rig.clocks.monotonic_s() + 2.0 + LEASE_EXTRA_S


def test_a_supervisor_whose_lease_lapsed_takes_over_no_run_for_a_while(
    rig: Rig,
) -> None:
    """The server's clock may have jumped, and with it every lease."""
    rig.begin()
    assert rig.pulse.may_take()
    rig.store.answers = [Renewal.LAPSED]
    rig.wait_posted(inp.Lapsed)
    assert not rig.pulse.may_take()


def test_a_short_failure_is_no_outage(rig: Rig) -> None:
    """A cut too short to end any lease delays no recovery."""
    rig.begin()
    rig.store.failing = StoreUnavailable("cut")
    rig.clocks.advance(0.2 * TTL_S)
    rig.store.failing = None
    rig.wait_renewed(2)
    assert rig.pulse.may_take()


def test_the_clocks_of_this_machine_agree() -> None:
    """A machine that is awake has not slept."""

    def made() -> LeaseRenewal:
        return LeaseRenewal(
            "run",
            TTL_S,
            opener=lambda: FakeStore(Clocks()),
            post=lambda _e: None,
            on_wake=lambda: None,
            known=Watermark("run"),
            lost=lambda _e: None,
            clock=SystemClock(),
        )

    pulse = made()
    assert not pulse.may_take()
    # Two clocks are read one after the other: now and then something comes between.
    skew_s = max(pulse._skew() for _ in range(20))
    assert abs(skew_s - max(made()._skew_s for _ in range(20))) < 0.1


def test_zygotes_are_told_a_deadline_just_before_the_leases_end(rig: Rig) -> None:
    """A stopped supervisor's attempts end before another run may begin them."""
    moved: list[float] = []
    rig.pulse.move_fence = moved.append
    rig.begin()
    wait_until(lambda: len(moved) > 1, PATIENCE_S, "moves")
    until_s = rig.of(inp.Renewed)[-1].until_s
    ahead_s = min(abs(until_s - one - margin_s(PUBLISHED_S) / 2) for one in moved)
    assert ahead_s < 0.05


def test_no_stop_between_two_clocks_makes_the_deadline_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of a clock may take seconds: the machine stood still just then."""
    fences_s: list[float] = []
    rig.pulse.move_fence = fences_s.append
    for name in ("monotonic_s", "boottime_s"):
        plain = getattr(rig.clocks, name)

        def read(plain: Callable[[], float] = plain) -> float:
            rig.clocks.advance(2.0)
            return plain()

        monkeypatch.setattr(rig.clocks, name, read)
    assert rig.pulse._renew(rig.store)
    (renewed,) = rig.of(inp.Renewed)
    assert fences_s[-1] <= renewed.until_s - margin_s(PUBLISHED_S) / 2
    # Time that the machine sleeps from now on is subtracted in full.
    assert rig.pulse._skew_s <= rig.clocks.slept_s


def test_an_outdated_run_keeps_its_leases_and_is_told(rig: Rig) -> None:
    """What it has may end in good order."""
    rig.store.answers = [Renewal.OUTDATED]
    rig.begin()
    rig.wait_posted(inp.Outdated)
    assert not rig.of(inp.Stop)
    rig.wait_renewed()


def test_a_run_that_lapsed_and_is_outdated_is_told_both(rig: Rig) -> None:
    """In this order: first that others may have taken its jobs."""
    rig.store.answers = [Renewal.LAPSED, Renewal.OUTDATED]
    rig.begin()
    rig.wait_posted(inp.Outdated)
    kinds = [type(one) for one in rig.posted]
    assert kinds.index(inp.Lapsed) < kinds.index(inp.Outdated)


def test_a_store_that_went_back_ends_the_renewals(rig: Rig) -> None:
    """It is reported as that, and not as a refusal: nothing may be written any more."""
    rig.begin()
    rig.wait_renewed(1)
    gone = StoreWentBack("the store went back in time")
    rig.store.failing = gone
    wait_until(lambda: rig.lost == [gone], PATIENCE_S, "the report")
    rig.pulse.join(PATIENCE_S)
    assert not rig.pulse.is_alive()
    assert not rig.of(inp.Stop)
