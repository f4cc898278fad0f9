"""Flows as a handler enqueues them: what is sent, and what is refused before that."""

import threading

import pytest

from jobpool.core.jobs.flow import (
    FLOW_AT_ONCE,
    AskedFlow,
    EnqueuedFlow,
    FlowState,
    NewFlow,
    NewStep,
    When,
)
from jobpool.core.jobs.job import NewJob
from jobpool.errors import QueueFull, UsageError
from jobpool.sandbox.protocol.messages import FRAME_MAX_BYTES, Answer, Ask, encode
from support.machine.child_channel import PATIENCE_S, Pair

FLOW = NewFlow(name="f", steps=(NewStep(number=0, name="s"),))
JOB = NewJob(kind="k", pool="cpu", payload=b"{}")
STORED = EnqueuedFlow(5, created=True, state=FlowState.OPEN, ref="r5")


@pytest.fixture
def pair():
    """Return a channel with its other end."""
    pair = Pair()
    yield pair
    pair.close()


def asked(pair, answer):
    """Enqueue a flow of two members; return what came of it and what was sent."""
    found = []

    def enqueue():
        try:
            found.append(pair.channel.enqueue_flow(FLOW, iter([(0, JOB)] * 2)))
        except QueueFull as exc:
            found.append(exc)

    thread = threading.Thread(target=enqueue)
    thread.start()
    (ask,) = pair.sent(1)
    pair.ours.sendall(encode(answer(ask.ask)))
    thread.join(PATIENCE_S)
    return found, ask


def test_a_flow_is_one_message_and_its_answer_says_as_what_it_is_stored(pair):
    found, ask = asked(pair, lambda n: Answer(n, [], flow=STORED))
    assert found == [STORED]
    assert ask == Ask(ask.ask, 70, [JOB, JOB], None, None, AskedFlow(FLOW, (0, 0)))


def test_an_error_of_the_store_is_the_handlers(pair):
    (error,), _ = asked(pair, lambda n: Answer(n, None, "QueueFull", "1 too many"))
    assert isinstance(error, QueueFull)
    assert str(error) == "1 too many"


def test_what_does_not_fit_one_message_is_refused_in_the_child(pair):
    """To the supervisor it would be garbage. A generator is not consumed for ever."""
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield 0, JOB

    large = NewJob(kind="k", pool="cpu", payload=b"x" * FRAME_MAX_BYTES)
    after = ((0, When.FINISHED),)
    circle = NewFlow(name="f", steps=(NewStep(number=0, name="s", after=after),))
    for flow, members, said in (
        (FLOW, endless(), "at most 10,000 jobs, .* several flows"),
        (FLOW, [(0, large)], "too much in one call: .* smaller flows"),
        (circle, [], "wait for each other"),
    ):
        with pytest.raises(UsageError, match=rf"{said}.*othing was stored"):
            pair.channel.enqueue_flow(flow, members)
    assert len(taken) == FLOW_AT_ONCE + 1
    pair.ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        pair.ours.recv(1)
