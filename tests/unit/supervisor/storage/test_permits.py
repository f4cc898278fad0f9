"""Permits in the store thread: written in one order, and every request is answered."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from jobpool.core.events.flow import DownstreamClosed, DownstreamOpened
from jobpool.core.events.supervisor import StoreTrouble
from jobpool.core.jobs.job import (
    Lease,
    PermitAnswer,
    PermitAsk,
    PermitReturn,
    RequestReport,
    Throttle,
)
from jobpool.errors import OutcomeUnknown, StoreUnavailable, StoreWentBack
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.storage import thread
from jobpool.supervisor.storage.inbox import Inbox
from jobpool.supervisor.storage.permits import WAKE_AFTER_S, FreedPermits
from support.machine.store_rig import PATIENCE_S, Rig, leased
from support.store.storing import ManualClock
from support.waiting import wait_until

ASK = PermitAsk(7, 70, 1, "stripe", "acme")
OTHER = PermitAsk(8, 80, 1, "stripe", "acme", 2)
BACK = PermitReturn(60, 1)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.thread.close(PATIENCE_S)
    assert not rig.thread.is_alive()


def test_a_request_for_a_permit_is_waited_for() -> None:
    """A return is not: it may wait for more to be written."""
    inbox = Inbox()
    inbox.take(cmd.ReturnPermits([BACK]))
    assert inbox
    assert inbox.can_wait
    inbox.take(cmd.TakePermits([ASK]))
    assert not inbox.can_wait


def test_what_comes_back_can_be_taken_in_the_same_turn(rig: Rig) -> None:
    """Buckets are closed first, then permits come back, then they are taken.

    All requests of a turn are one transaction, and each has its answer.
    """
    with rig.thread._changed:
        rig.thread.leave(
            [
                cmd.TakePermits([ASK]),
                cmd.ReturnPermits([BACK]),
                cmd.TakePermits([OTHER]),
                cmd.BlockBuckets([Throttle("stripe", "acme", 10)]),
                cmd.BlockBuckets([Throttle("stripe", "acme", 30)]),
                cmd.BlockBuckets([Throttle("stripe", "acme", 20)]),
            ]
        )
    assert rig.wait_for(inp.PermitsAnswered) == inp.PermitsAnswered(
        [ASK, OTHER], [PermitAnswer(granted=True), PermitAnswer(granted=False)]
    )
    assert rig.store.done == [
        ("block", [Throttle("stripe", "acme", 30)]),
        ("return", [BACK]),
        ("take", [ASK, OTHER]),
    ]


def test_no_bucket_is_waited_for_while_a_claim_holds_others(rig: Rig) -> None:
    """Ends and leases are committed before: two supervisors cannot wait in a circle."""
    with rig.thread._changed:
        rig.settle(1)
        rig.thread.leave([cmd.Lease({"cpu": 1}), cmd.TakePermits([ASK])])
    rig.wait_for(inp.PermitsAnswered)
    kinds = [type(one) for one in rig.posted]
    granted, answered = kinds.index(inp.Granted), kinds.index(inp.PermitsAnswered)
    assert kinds.index(inp.Settled) < granted < answered


@pytest.mark.parametrize("error", [StoreUnavailable("away"), OutcomeUnknown("lost")])
def test_a_request_that_could_not_be_written_is_answered(
    rig: Rig, error: Exception
) -> None:
    """The machine asks again; what came back is written as soon as the store is back.

    If it was granted after all, it is granted again.
    """
    rig.store.failures.append(error)
    rig.thread.leave(
        [
            cmd.TakePermits([ASK]),
            cmd.ReturnPermits([BACK]),
            cmd.BlockBuckets([Throttle("stripe", "acme", 10)]),
        ]
    )
    assert rig.wait_for(inp.PermitsAnswered) == inp.PermitsAnswered([ASK], None)
    wait_until(lambda: len(rig.store.done) >= 5, PATIENCE_S, "written again")
    assert rig.store.done[3:] == [
        ("block", [Throttle("stripe", "acme", 10)]),
        ("return", [BACK]),
    ]


def test_ends_that_cannot_be_written_leave_no_request_unanswered(rig: Rig) -> None:
    """Its handler waits for a bounded time, whatever happens to the store."""
    rig.store.failures.append(StoreUnavailable("away"))
    with rig.thread._changed:
        rig.settle(1)
        rig.thread.leave([cmd.TakePermits([ASK])])
    assert rig.wait_for(inp.PermitsAnswered) == inp.PermitsAnswered([ASK], None)


def test_a_store_that_went_back_answers_that_nothing_was_taken(rig: Rig) -> None:
    """Nothing is written into it any more."""
    rig.thread.give_up(StoreWentBack("it went back"))
    rig.thread.leave([cmd.TakePermits([ASK])])
    assert rig.wait_for(inp.PermitsAnswered) == inp.PermitsAnswered([ASK], None)
    assert rig.store.done == []


def leases(count: int, *, laned: bool = True) -> LeaseBatch:
    """Return a grant of so many jobs."""
    return LeaseBatch(
        leases=tuple(
            Lease(n, n, "k", "cpu", 1, b"", laned=laned) for n in range(1, count + 1)
        )
    )


@pytest.mark.parametrize(
    ("freed", "grant", "wanted", "is_for_others"),
    [
        (1, leases(1), 8, False),
        (2, leases(3), 8, False),
        (2, leases(1), 8, True),
        (1, leases(0), 8, True),
        (1, leases(1, laned=False), 8, True),
        (1, leases(8), 8, True),
    ],
)
def test_what_is_taken_here_again_wakes_nobody(freed, grant, wanted, is_for_others):
    """Others are woken for what is left, or might be, for want of slots here."""
    permits = FreedPermits()
    permits.came_free(freed, 100.0)
    permits.leased(grant, wanted, 100.0)
    assert permits.take_due(100.0) == is_for_others
    assert not permits.take_due(200.0)


def test_what_no_lease_here_follows_is_for_others_soon():
    """They wait for the next lease only a moment, from the first that came free."""
    permits = FreedPermits()
    assert permits.wait_s(100.0) is None
    permits.came_free(1, 100.0)
    permits.came_free(1, 100.0 + WAKE_AFTER_S / 2)
    assert not permits.take_due(100.0 + WAKE_AFTER_S / 2)
    assert permits.wait_s(100.0 + WAKE_AFTER_S) == 0.0
    assert permits.take_due(100.0 + WAKE_AFTER_S)
    assert permits.wait_s(200.0) is None


def test_others_are_woken_when_permits_came_free(rig: Rig) -> None:
    """Once, after the commit; else nobody is."""
    rig.settle(1)
    rig.wait_settled(1)
    assert rig.store.wakes == 0
    rig.store.freed = True
    rig.settle(2)
    rig.wait_settled(2)
    wait_until(lambda: rig.store.wakes, PATIENCE_S, "woken")
    rig.thread.leave([cmd.TakePermits([ASK])])
    rig.wait_for(inp.PermitsAnswered)
    assert rig.store.wakes == 1


def test_the_lease_that_follows_an_end_takes_what_it_has_freed(rig: Rig) -> None:
    """In the same commit; the next free one is for others again."""
    rig.store.freed = True
    rig.store.grants = [msgspec.structs.replace(leased(7), laned=True)]
    with rig.thread._changed:
        rig.settle(1)
        rig.thread.leave([cmd.Lease({"cpu": 2})])
    rig.wait_for(inp.Granted)
    rig.settle(7)
    rig.wait_settled(2)
    assert rig.store.wakes == 0
    rig.store.freed = True
    rig.settle(8)
    wait_until(lambda: rig.store.wakes, PATIENCE_S, "woken")


def test_a_permit_that_another_request_takes_at_once_wakes_nobody(rig: Rig) -> None:
    """It came free and is used again in one transaction."""
    rig.store.freed = True
    with rig.thread._changed:
        rig.thread.leave([cmd.ReturnPermits([BACK]), cmd.TakePermits([ASK])])
    rig.wait_for(inp.PermitsAnswered)
    rig.settle(1)
    rig.wait_settled(1)
    assert rig.thread._freed.wait_s(0.0) is None
    assert rig.store.wakes == 0


def test_an_end_waits_for_the_lease_that_follows_a_grant_with_permits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes in the same commit what the end lets go; plain jobs are as ever."""
    monkeypatch.setattr(thread, "LINGER_S", 1000 * PATIENCE_S)
    rig = Rig(ManualClock())
    rig.store.grants = [msgspec.structs.replace(leased(7), laned=True)]
    rig.thread.leave([cmd.Lease({"cpu": 2})])
    rig.wait_for(inp.Granted)
    rig.settle(7)
    wait_until(lambda: rig.thread._lingers, PATIENCE_S, "for more to be left")
    assert rig.store.settled == []
    rig.thread.leave([cmd.Lease({"cpu": 2})])
    wait_until(lambda: len(rig.of(inp.Granted)) == 2, PATIENCE_S, "both grants")
    kinds = [type(one) for one in rig.posted if not isinstance(one, inp.Tick)]
    assert kinds == [inp.Granted, inp.Settled, inp.Granted]
    rig.thread.close(PATIENCE_S)


def test_reports_of_requests_are_a_transaction_of_their_own(rig: Rig) -> None:
    """The log hears what came of them; what could not be written is not counted."""
    bad = RequestReport("stripe", "", 70, 20, 10)
    good = RequestReport("stripe", "", 71, 1, 0)
    rig.thread.leave([cmd.ReportRequests([bad], 5), cmd.TakePermits([ASK])])
    opened = rig.wait_for(DownstreamOpened)
    assert (opened.quota, opened.requests, opened.failures) == ("stripe", 20, 10)
    assert opened.at_ms == 5
    rig.store.failures = [StoreUnavailable("gone")]
    rig.thread.leave([cmd.ReportRequests([bad], 5)])
    rig.wait_for(StoreTrouble)
    rig.thread.leave([cmd.ReportRequests([good], 5)])
    assert rig.wait_for(DownstreamClosed).quota == "stripe"
    reports = [given for what, given in rig.store.done if what == "report"]
    assert reports == [[bad], [good]]
