"""Permits as a handler asks for them: what is sent, and who gets which answer."""

import threading

import pytest

from jobpool.core.application.current import PermitReply
from jobpool.errors import StoreUnavailable, UsageError
from jobpool.sandbox.child.channel import PERMITS_MAX
from jobpool.sandbox.protocol.messages import (
    AskPermit,
    BlockBucket,
    RequestEnded,
    ReturnPermit,
)
from support.machine.child_channel import PATIENCE_S, Pair


@pytest.fixture
def pair():
    """Return a channel with its other end."""
    pair = Pair()
    yield pair
    pair.close()


def test_a_permit_is_asked_for_under_the_attempts_token(pair):
    """And its answer is the one with its number, in whatever order they come."""
    first = pair.channel.ask_permit("stripe", "acme", 2, 5.0)
    second = pair.channel.ask_permit("stripe", "", 1, 0.5)
    assert pair.sent(2) == [
        AskPermit(70, first, "stripe", "acme", 2, 5.0),
        AskPermit(70, second, "stripe", "", 1, 0.5),
    ]
    assert pair.channel.permit_answer(first, 0.0) is None
    pair.answer(second, granted=True)
    pair.answer(first, granted=False, retry_in_s=3.0)
    assert pair.channel.permit_answer(second, PATIENCE_S) == PermitReply(True)
    assert pair.channel.permit_answer(first, PATIENCE_S) == PermitReply(False, 3.0)


def test_a_permit_is_returned_once_and_a_refused_one_never(pair):
    """What its child returns is what the supervisor takes back."""
    held = pair.channel.ask_permit("stripe", "", 1, 5.0)
    refused = pair.channel.ask_permit("stripe", "", 1, 5.0)
    pair.answer(held, granted=True)
    pair.answer(refused, granted=False)
    for n in (held, refused):
        while pair.channel.permit_answer(n, PATIENCE_S) is None:
            pass
    pair.sent(2)
    for n in (held, held, refused):
        pair.channel.return_permit(n)
    pair.channel.block_bucket("stripe", "acme", 30.0)
    pair.channel.report_request("stripe", "acme", failed=True)
    assert pair.sent(3) == [
        ReturnPermit(70, held),
        BlockBucket(70, "stripe", "acme", 30.0),
        RequestEnded(70, "stripe", "acme", failed=True),
    ]


def test_who_waits_for_a_permit_keeps_no_other_thread_from_returning_one(pair):
    """Else two threads of a handler could wait for each other."""
    held = pair.channel.ask_permit("stripe", "", 1, 5.0)
    wanted = pair.channel.ask_permit("stripe", "", 1, 5.0)
    replies = []

    def wait():
        while not replies:
            reply = pair.channel.permit_answer(wanted, PATIENCE_S)
            replies.extend([] if reply is None else [reply])

    waiter = threading.Thread(target=wait)
    waiter.start()
    pair.sent(2)
    pair.channel.return_permit(held)
    assert pair.sent(1) == [ReturnPermit(70, held)]
    pair.answer(wanted, granted=True)
    waiter.join(PATIENCE_S)
    assert replies == [PermitReply(True)]


def test_after_the_attempts_end_nothing_is_asked_and_nothing_left_to_return(pair):
    """Its permits have ended with it."""
    held = pair.channel.ask_permit("stripe", "", 1, 5.0)
    pair.sent(1)
    pair.channel.close()
    pair.channel.return_permit(held)
    pair.channel.report_request("stripe", "", failed=True)
    with pytest.raises(UsageError, match="attempt has ended"):
        pair.channel.ask_permit("stripe", "", 1, 5.0)
    with pytest.raises(UsageError, match="attempt has ended"):
        pair.channel.block_bucket("stripe", "", 5.0)
    pair.ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        pair.ours.recv(1)


def test_an_attempt_holds_no_endless_number_of_permits(pair):
    """It is told, before the supervisor would take it for a broken child."""
    for _ in range(PERMITS_MAX):
        n = pair.channel.ask_permit("stripe", "", 1, 5.0)
        pair.sent(1)
    with pytest.raises(UsageError, match="return some of them first"):
        pair.channel.ask_permit("stripe", "", 1, 5.0)
    pair.channel.return_permit(n)
    assert pair.channel.ask_permit("stripe", "", 1, 5.0) > n


def test_nobody_waits_for_a_supervisor_that_is_gone(pair):
    """The wait ends with an error that says so."""
    n = pair.channel.ask_permit("stripe", "", 1, 5.0)
    pair.ours.close()
    with pytest.raises(StoreUnavailable, match="supervisor is gone"):
        pair.channel.permit_answer(n, PATIENCE_S)
