"""Permits in the store thread: written in one order, and every request is answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobpool.core.jobs.job import PermitAnswer, PermitAsk, PermitReturn, Throttle
from jobpool.errors import OutcomeUnknown, StoreUnavailable, StoreWentBack
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.storage.inbox import Inbox
from support.machine.store_rig import PATIENCE_S, Rig
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
