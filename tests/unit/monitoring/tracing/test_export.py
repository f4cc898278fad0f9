"""Spans are sent in the background, or dropped and counted; a job never waits."""

import socket

import msgspec
import pytest
from opentelemetry.sdk.resources import Resource

from jobpool.core.clock import SystemClock
from jobpool.core.events.figures import AttemptTraced
from jobpool.core.events.supervisor import LinesDropped
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import Tracer
from jobpool.monitoring.tracing import export
from jobpool.monitoring.tracing.export import SpanExport
from jobpool.monitoring.tracing.spans import resource, span_of
from support.otlp import Receiver
from support.waiting import wait_until

PATIENCE_S = 30.0
CAUSE = f"00-{'a' * 32}-{'b' * 16}-01 vendor=1"


def ended(outcome=Outcome.SUCCEEDED, **fields):
    """An attempt that has ended."""
    usual = AttemptTraced(
        at_ms=0,
        trace=Tracer(b"key", 1.0).of(CAUSE, 7, 11),
        cause=CAUSE,
        id=7,
        kind="shop.add",
        pool="cpu",
        slot="cpu/0",
        attempt=1,
        began_ns=10**9,
        ended_ns=3 * 10**9,
        waited_s=0.5,
        payload_bytes=2,
        state=JobState.SUCCEEDED,
        outcome=outcome,
        reason=None,
        error_class=None,
        error=None,
        signal=None,
        exit_code=None,
        peak_rss_bytes=None,
        cpu_s=None,
    )
    return msgspec.structs.replace(usual, **fields)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let ends wait for what a busy machine sends, unless a test is about that."""
    monkeypatch.setattr(export, "CLOSE_S", PATIENCE_S)


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def dropped():
    return []


def exporting(url, dropped):
    return SpanExport(url, dropped.append, SystemClock())


@pytest.mark.parametrize("path", ["", "/v1/traces"])
def test_all_spans_are_sent_also_those_of_the_last_moment(receiver, dropped, path):
    with exporting(receiver.url + path, dropped) as own:
        for _ in range(1000):
            own.observe(ended())
        own.observe(LinesDropped(at_ms=0, lines=1))  # not what it is for
    assert len(receiver.spans) == 1000
    assert dropped == []


def test_what_nobody_takes_is_dropped_and_told(receiver, dropped):
    """Once in a while, and when it ends, so that every one is counted."""
    receiver.status = 400
    with exporting(receiver.url, dropped) as own:
        own.observe(ended())
        wait_until(lambda: dropped, PATIENCE_S, "the first is told")
        own.observe(ended())
        wait_until(lambda: receiver.asked >= 2, PATIENCE_S, "the second was offered")
    assert [event.spans for event in dropped] == [1, 1]
    assert receiver.url in dropped[0].reason


def test_a_receiver_that_is_away_does_not_keep_a_supervisor_from_ending(
    dropped, monkeypatch
):
    """It is left after a moment, and what it did not get is told."""
    monkeypatch.setattr(export, "CLOSE_S", 0.2)
    with socket.socket() as away:  # it has the port, so that nobody else listens there
        away.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{away.getsockname()[1]}"
        with exporting(url, dropped) as own:
            own.observe(ended())
    assert [event.spans for event in dropped] == [1]


def test_of_more_than_there_is_room_for_the_newest_are_dropped(
    receiver, dropped, monkeypatch
):
    monkeypatch.setattr(export, "ASIDE_MAX", 3)
    own = exporting(receiver.url, dropped)
    for number in range(5):
        own.observe(ended(attempt=number))
    with own:
        wait_until(lambda: len(receiver.spans) == 3, PATIENCE_S, "what had room")
    assert [one.attributes["jobpool.attempt"] for one in receiver.spans] == [0, 1, 2]
    assert [event.spans for event in dropped] == [2]


@pytest.mark.parametrize("outcome", [*Outcome, None])
def test_an_end_is_an_error_unless_it_came_from_outside(outcome):
    span = span_of(ended(outcome, reason="as it was"), resource())
    well = {Outcome.SUCCEEDED, Outcome.INTERRUPTED, Outcome.CANCELED, None}
    assert span.status.is_ok is (outcome in well)
    assert span.attributes["jobpool.outcome"] == str(outcome or "snoozed")
    assert ("error.type" in span.attributes) is (outcome not in well)
    assert None not in span.attributes.values()


@pytest.mark.parametrize(
    ("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV"), (40, "40"), (None, None)]
)
def test_signals_have_their_names(number, name):
    span = span_of(ended(Outcome.CRASHED, signal=number), resource())
    assert span.attributes.get("jobpool.signal") == name


def test_a_span_is_below_what_has_caused_it_and_carries_what_vendors_added():
    span = span_of(ended(), resource())
    assert format(span.context.trace_id, "032x") == "a" * 32
    assert format(span.parent.span_id, "016x") == "b" * 16
    assert span.context.trace_state.to_header() == "vendor=1"
    assert span_of(ended(cause=None), resource()).parent is None


def test_the_environment_says_who_sends(monkeypatch):
    """As everywhere with OpenTelemetry; without it, it is jobpool."""
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    assert resource().attributes["service.name"] == "jobpool"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,site=north")
    assert resource().attributes["service.name"] == "shop"
    assert resource().attributes["site"] == "north"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "jobs")
    found = resource()
    assert isinstance(found, Resource)
    assert found.attributes["service.name"] == "jobs"
