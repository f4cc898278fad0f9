"""In which trace jobs are enqueued."""

import asyncio
import contextvars
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from jobpool import UsageError
from jobpool.core.application.current import AttemptLimits, Current, enter
from jobpool.core.application.current_span import current_trace, enter_span
from jobpool.core.jobs.trace import UNRECORDED, read_trace
from support.store.client_fakes import FakeStore, FlowStore, adder, pool_with

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HERE = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{TRACE}-{'1' * 16}-00"


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def add(store):
    return adder(pool_with(store))


def span(state="", sampled=1):
    """Return a span that some framework has begun."""
    vendors = TraceState.from_header([state])
    ids = int(TRACE, 16), int(SPAN, 16)
    return NonRecordingSpan(SpanContext(*ids, False, TraceFlags(sampled), vendors))


@pytest.fixture
def attempt():
    """Run an attempt in this process, with a channel that enqueues for it."""
    limits = AttemptLimits(60, 2**20, 5, 0)
    store = FakeStore()
    kept = Current(
        job_id=1,
        kind="k",
        attempt=1,
        token=1,
        deadline_monotonic_s=0.0,
        checkpoint=None,
        channel=store,
        limits=limits,
        trace=f"{OTHER} a=1",
    )
    store.claim = lambda: None
    enter(store, kept)
    yield store, kept
    enter(None, None)


def test_a_job_is_in_the_trace_of_the_current_span(store, add):
    """With what vendors have added, and whether it is recorded; else in none."""
    add.enqueue(1)
    with trace.use_span(span("a=1,b=2")):
        add.enqueue(2)
    with trace.use_span(span(sampled=0)):
        asyncio.run(add.enqueue_async(3))
    traces = [job.trace for job in store.jobs]
    assert traces == [None, f"{HERE} a=1,b=2", f"00-{TRACE}-{SPAN}-00"]


def test_many_jobs_are_in_the_trace_in_which_they_are_stored(store):
    """Calls and items alike, whenever they were made; who says another has that."""
    jobs = pool_with(store)
    add = adder(jobs)
    calls = [add.call(1), add.options(trace=OTHER).call(2)]
    with trace.use_span(span()):
        jobs.enqueue_many(calls)
        jobs.enqueue_many(add, [{"a": 3}, {"a": 4}])
    assert [job.trace for job in store.jobs] == [HERE, OTHER, HERE, HERE]


def test_a_flow_is_in_the_trace_in_which_it_is_stored():
    store = FlowStore()
    jobs = pool_with(store)
    add = adder(jobs)
    flow = jobs.flow("sum")
    flow.add_many([add.call(n) for n in range(2)])
    with trace.use_span(span()):
        flow.enqueue()
    ((_, members, _),) = store.made
    assert [job.trace for _, job in members] == [HERE, HERE]


def test_what_a_handler_enqueues_is_in_the_trace_of_its_attempt(attempt, add):
    """Below a span of its own, if it has begun one; OpenTelemetry is not needed."""
    store, kept = attempt
    add.enqueue(1)
    with trace.use_span(span()):
        add.enqueue(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "opentelemetry.trace")
        add.enqueue(3)
    assert [job.trace for job in store.jobs] == [f"{OTHER} a=1", HERE, f"{OTHER} a=1"]
    assert kept.traceparent == OTHER
    kept.trace = None
    assert kept.traceparent is None


@pytest.mark.parametrize("wrong", ["", "abc", HERE.upper(), 7, f"ff{HERE[2:]}"])
def test_what_is_no_trace_context_is_refused(store, add, wrong):
    with pytest.raises(UsageError, match="trace"):
        add.options(trace=wrong)
    assert store.jobs == []


@pytest.mark.parametrize(
    ("text", "sampled"), [(f"{HERE} a=1", True), (OTHER, False), (UNRECORDED, False)]
)
def test_the_spans_of_a_handler_are_recorded_as_its_attempt_is(text, sampled):
    """They are below its span, also in what it calls; and gone after it."""
    context = contextvars.copy_context()
    enter_span(context, text, 11)
    provider = TracerProvider()
    tracer = provider.get_tracer("shop")
    own = context.run(tracer.start_span, "resize")
    within = context.run(current_trace)
    found = read_trace(within)
    assert own.is_recording() is found.sampled is sampled
    assert format(own.get_span_context().trace_id, "032x") == found.trace_id
    assert text in {within, UNRECORDED}
    assert current_trace() is None
    provider.shutdown()


def test_an_attempt_in_no_trace_leaves_the_decision_to_its_handler(monkeypatch):
    context = contextvars.copy_context()
    enter_span(context, None, 11)
    assert context.run(current_trace) is None
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    enter_span(context, HERE, 11)  # it is not loaded: nothing can be told
    monkeypatch.undo()
    assert context.run(current_trace) is None
