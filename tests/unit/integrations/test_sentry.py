"""Spans of what is enqueued, and of attempts, as Sentry's conventions have them."""

import asyncio

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from jobpool import JobPool, QueueFull
from jobpool.core.jobs.trace import read_trace
from jobpool.integrations.sentry import connect
from jobpool.testing import Queue
from support.store.client_fakes import FakeStore, FlowStore, adder, pool_with


class Kept(Transport):
    """Keeps transactions and does not send them."""

    def __init__(self, options=None):
        super().__init__(options)
        self.transactions = []

    def capture_envelope(self, envelope):
        found = envelope.get_transaction_event()
        if found is not None:
            self.transactions.append(found)


@pytest.fixture
def sent():
    """The transactions of this process's Sentry, which patches nothing."""
    kept = Kept()
    sentry_sdk.init(
        "http://key@127.0.0.1:9/1",
        transport=kept,
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
        enable_backpressure_handling=False,  # a thread that would go on for ever
    )
    yield kept.transactions
    sentry_sdk.get_client().close(timeout=0.0)
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def jobs(store):
    jobs = pool_with(store)
    connect(jobs)
    return jobs


def spans(transaction):
    return [one for one in transaction["spans"] if one["op"] == "queue.publish"]


def traces(store):
    return [read_trace(job.trace) for job in store.jobs]


def test_a_job_is_below_the_span_that_has_enqueued_it(sent, store, jobs):
    """Whose data names it; what comes later in the request is not below that span."""
    add = adder(jobs)
    with sentry_sdk.start_transaction(name="POST /orders") as request:
        job = add.options(priority=2).enqueue(7)
        assert sentry_sdk.get_current_span() is request
    (span,) = spans(sent[0])
    (trace,) = traces(store)
    assert (trace.trace_id, trace.span_id) == (request.trace_id, span["span_id"])
    assert span["parent_span_id"] == request.span_id
    assert (span["description"], span["origin"]) == (add.kind, "auto.queue.jobpool")
    data = {k: v for k, v in span["data"].items() if k.startswith("messaging.")}
    assert data == {
        "messaging.system": "jobpool",
        "messaging.message.id": str(job.id),
        "messaging.destination.name": add.pool,
        "messaging.message.body.size": len(store.jobs[0].payload),
    }


def test_many_jobs_have_one_span_with_their_number(sent, store, jobs):
    """A span each would be more than Sentry takes."""
    add = adder(jobs)
    with sentry_sdk.start_transaction(name="import"):
        jobs.enqueue_many(add, [{"a": n} for n in range(5)])
    (span,) = spans(sent[0])
    assert span["data"]["messaging.batch.message_count"] == 5
    assert span["data"]["messaging.destination.name"] == add.pool
    assert span["description"] == add.kind
    assert {one.span_id for one in traces(store)} == {span["span_id"]}


def test_a_flow_has_one_span_with_its_name(sent):
    store = FlowStore()
    jobs = pool_with(store)
    connect(jobs)
    add = adder(jobs)
    with sentry_sdk.start_transaction(name="import"):
        flow = jobs.flow("sums")
        flow.add_many([add.call(1), add.call(2)])
        flow.enqueue()
    (span,) = spans(sent[0])
    assert span["description"] == "sums"
    ((_, members, _),) = store.made
    ids = {read_trace(job.trace).span_id for _, job in members}
    assert ids == {span["span_id"]}


def test_what_is_enqueued_side_by_side_is_below_the_request(sent, store, jobs):
    """Each call has a thread, and they share the scope of their request."""
    add = adder(jobs)

    async def serve():
        with sentry_sdk.start_transaction(name="POST /orders") as request:
            await asyncio.gather(*(add.enqueue_async(n) for n in range(8)))
            assert sentry_sdk.get_current_span() is request
            return request.span_id

    request = asyncio.run(serve())
    found = spans(sent[0])
    assert {one["parent_span_id"] for one in found} == {request}
    ids = sorted(one["span_id"] for one in found)
    assert sorted(one.span_id for one in traces(store)) == ids


def test_a_span_of_what_is_refused_has_failed(sent, store, jobs):
    store.error = QueueFull("too many jobs wait")
    with (
        sentry_sdk.start_transaction(name="POST /orders"),
        pytest.raises(QueueFull),
    ):
        adder(jobs).enqueue(1)
    (span,) = spans(sent[0])
    assert span["status"] == "internal_error"
    assert "messaging.message.id" not in span["data"]


def test_beside_any_transaction_nothing_is_made(sent, store, jobs):
    adder(jobs).enqueue(1)
    assert sent == []
    assert traces(store)[0].trace_id == sentry_sdk.get_traceparent()[:32]


def test_an_attempt_says_which_message_it_processes_and_how_long_that_waited(sent):
    """As its producer has said it; the latency is in milliseconds."""
    jobs = JobPool()
    connect(jobs)

    @jobs.job("io", kind="shop.charge", retry={"Exception": ["1s"]})
    def charge(order: int) -> None:
        raise ConnectionError("no")

    with Queue() as queue:
        queue.serve(jobs)
        with sentry_sdk.start_transaction(name="POST /orders"):
            job = charge.enqueue(7)
        queue.clock.advance("2s")
        queue.drain()
    (span,) = spans(sent[0])
    first, second, *_ = [one["contexts"]["trace"] for one in sent[1:]]
    assert first["op"] == "queue.process"
    assert first["parent_span_id"] == span["span_id"]
    for name in ("message.id", "message.body.size", "destination.name"):
        assert first["data"][f"messaging.{name}"] == span["data"][f"messaging.{name}"]
    assert first["data"]["messaging.message.id"] == str(job.id)
    counts = [one["data"]["messaging.message.retry.count"] for one in (first, second)]
    assert counts == [0, 1]
    assert first["data"]["messaging.message.receive.latency"] == pytest.approx(2000)
