"""Spans of attempts: which are reported, what they say, and in which trace logs are."""

import msgspec
import pytest

from jobpool.core.application.handler_spec import HOOK_DEAD, HandlerSpec
from jobpool.core.events.figures import AttemptTraced
from jobpool.core.events.jobs import JobEnded, JobOutput, JobSucceeded
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.jobs.trace import UNRECORDED, Tracer, read_trace
from jobpool.core.rules.policy import Policy
from jobpool.sandbox.protocol.messages import Raised
from support.machine.world import World, pool

RECORDED = f"00-{'a' * 32}-{'b' * 16}-01 vendor=1"
REFUSED = f"00-{'c' * 32}-{'d' * 16}-00"


def world(sample=0.0, **options):
    """Return a supervisor's machine that reports spans."""
    made = World(pool(size=1), **options)
    made.machine.trace_by(Tracer(b"key", sample))
    return made.up()


def said(world, kind):
    return [event for event in world.said if type(event) is kind]


def test_a_success_of_a_recorded_trace_is_a_span():
    """Below what has caused it, with its times and what it has used."""
    at = world()
    at.job(trace=RECORDED, payload=b'{"a":1}', due_ms=1, leased_at_ms=3001)
    at.notify()
    (sent,) = at.sent[0]
    at.now_s += 2.5
    at.done(0, duration_s=2.0, began_s=at.now_s - 2.25, cpu_s=0.5)
    (span,) = said(at, AttemptTraced)
    assert span.trace == read_trace(sent.trace)
    assert (span.trace.trace_id, span.trace.state) == ("a" * 32, "vendor=1")
    assert span.trace.span_id != "b" * 16
    assert (span.cause, span.kind, span.slot) == (RECORDED, "cpu.work", "cpu/0")
    assert (span.outcome, span.state) == (Outcome.SUCCEEDED, JobState.SUCCEEDED)
    assert (span.ended_ns - span.began_ns, span.payload_bytes) == (2_000_000_000, 7)
    assert span.began_ns == round((at.now_s - 2.25) * 1e9)
    assert span.waited_s == pytest.approx(3.25)
    assert (span.cpu_s, span.peak_rss_bytes) == (0.5, 21 * 2**20)


def test_a_killed_attempt_is_a_span_and_its_log_is_in_the_trace():
    at = world()
    at.job(trace=RECORDED)
    at.notify()
    at.now_s += 1
    at.died(0, signal=11)
    (span,), (ended,) = said(at, AttemptTraced), said(at, JobEnded)
    assert (span.outcome, span.signal) == (Outcome.CRASHED, 11)
    assert (span.state, span.reason) == (JobState.PENDING, ended.reason)
    assert ended.trace_id == span.trace.trace_id == "a" * 32


@pytest.mark.parametrize("sample", [0.0, 1.0])
def test_who_has_begun_a_trace_decides_whether_it_is_recorded(sample):
    """And the configuration about those that begin with a job."""
    at = world(sample)
    for trace in (REFUSED, None, RECORDED):
        at.job(trace=trace)
        at.notify()
        at.done(0)
    recorded = [span.id for span in said(at, AttemptTraced)]
    assert recorded == ([2, 3] if sample else [3])
    first, second, third = (frame.trace for frame in at.sent[0])
    assert not read_trace(first).sampled
    assert read_trace(second).sampled if sample else second == UNRECORDED
    assert read_trace(third).sampled
    logged = [event.trace_id for event in said(at, JobSucceeded)]
    ids = ["c" * 32, read_trace(second).trace_id if sample else None, "a" * 32]
    assert logged == ids


def test_without_spans_a_child_is_told_of_the_trace_that_has_caused_its_job():
    at = World(pool(size=1)).up()
    for trace in (RECORDED, None):
        at.job(trace=trace)
        at.notify()
        at.done(0, output=b"a line")
    assert [frame.trace for frame in at.sent[0]] == [RECORDED, None]
    assert [one.trace_id for one in said(at, JobOutput)] == ["a" * 32, None]
    assert not said(at, AttemptTraced)


def test_an_attempt_that_snoozes_is_a_span_and_one_that_never_began_is_none():
    at = world()
    at.job(trace=RECORDED)
    at.notify()
    at.done(0, error=Raised(["jobpool.Snooze"], "", "", snooze_s=5.0))
    (span,) = said(at, AttemptTraced)
    assert (span.outcome, span.state) == (None, JobState.PENDING)
    at.job(trace=RECORDED)
    at.notify()
    at.died(0, signal=9, never_begun=(at.machine.slots[0].queue[0].seq,), marked=None)
    assert said(at, AttemptTraced) == [span]


def test_what_a_failure_leads_to_is_in_its_trace():
    """The job of a hook is below the attempt that has failed."""
    at = World(pool(size=1), policy=Policy(max_attempts=1))
    hook = HandlerSpec(kind=HOOK_DEAD, pool="cpu")
    handlers = (*at.report.handlers, hook)
    at.report = msgspec.structs.replace(at.report, handlers=handlers)
    at.machine.trace_by(Tracer(b"key", 0.0))
    at.up()
    at.job(trace=RECORDED)
    at.notify()
    at.done(0, error=Raised(["ValueError"], "no", ""))
    (settlement,) = at.settled
    (span,) = said(at, AttemptTraced)
    assert read_trace(settlement.followup.trace) == span.trace
