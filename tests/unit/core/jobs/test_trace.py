"""Trace contexts: what is read, what is not, and how attempts get theirs."""

import pytest

from jobpool.core.jobs.trace import (
    STATE_MAX,
    UNDECIDED,
    Tracer,
    read_trace,
    trace_in,
    unrecorded,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
TRACER = Tracer(b"key of a store", 1.0)


@pytest.mark.parametrize("state", ["", "a=1,b=2", "x" * STATE_MAX])
@pytest.mark.parametrize("flags", ["00", "01", "02", "ff"])
def test_a_context_is_read_as_w3c_says(flags, state):
    text = f"00-{TRACE}-{SPAN}-{flags} {state}".strip()
    found = read_trace(text)
    sampled = flags in {"01", "ff"}
    assert found == (TRACE, SPAN, sampled, state)
    # Other flags mean nothing in version 00, which is what is passed on.
    assert found.text == f"00-{TRACE}-{SPAN}-0{int(sampled)} {state}".strip()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        TRACE,
        PARENT.upper(),
        PARENT + "0",
        PARENT + "-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-1g",
        f" {PARENT}",
    ],
)
def test_what_is_no_context_is_none(text):
    assert read_trace(text) is None


@pytest.mark.parametrize("more", ["", "-", "-what.the.future-brings"])
def test_a_later_version_is_read_as_far_as_the_first_goes(more):
    assert read_trace(f"cc-{TRACE}-{SPAN}-01{more}") == (TRACE, SPAN, True, "")


@pytest.mark.parametrize("state", ["x" * (STATE_MAX + 1), "a=\n", "a=ä"])
def test_a_state_that_cannot_be_passed_on_is_left_out(state):
    assert read_trace(f"{PARENT} {state}") == (TRACE, SPAN, True, "")


def test_an_attempt_is_in_the_trace_in_which_its_job_was_enqueued():
    """Also its vendors' state and whether it is recorded are that trace's."""
    own = TRACER.of(f"{PARENT} a=1", 7, 11)
    assert (own.trace_id, own.sampled, own.state) == (TRACE, True, "a=1")
    assert not TRACER.of(f"00-{TRACE}-{SPAN}-00", 7, 11).sampled
    assert own.span_id != SPAN
    assert read_trace(own.text) == own


@pytest.mark.parametrize("sample", [0.0, 1.0])
def test_what_nobody_has_decided_is_recorded_by_the_share_that_is_configured(sample):
    """And who comes next is told that it is still open."""
    own = Tracer(b"key", sample).of(f"00-{TRACE}-{SPAN}-00 {UNDECIDED}", 7, 11)
    assert (own.trace_id, own.sampled) == (TRACE, bool(sample))
    assert own.state == UNDECIDED


def test_all_attempts_of_a_job_are_in_one_trace_each_as_a_span_of_its_own():
    """Whoever asks gets the same ids; another store has others."""
    first, second = TRACER.of(None, 7, 11), TRACER.of(None, 7, 12)
    assert first == TRACER.of(None, 7, 11) == TRACER.of("no context", 7, 11)
    assert first.trace_id == second.trace_id
    assert first.span_id != second.span_id
    others = TRACER.of(None, 8, 11), Tracer(b"another", 0.5).of(None, 7, 11)
    assert all(one.trace_id != first.trace_id for one in others)
    assert read_trace(first.text) == first


@pytest.mark.parametrize("sample", [0.0, 0.01, 0.5, 1.0])
def test_so_many_traces_that_begin_with_a_job_are_recorded(sample):
    tracer = Tracer(b"key", sample)
    for ids in (range(1, 4001), range(10**12, 10**12 + 4000), range(0, 40000, 10)):
        recorded = [job for job in ids if tracer.of(None, job, 1) is not None]
        assert recorded == [job for job in ids if tracer.of(None, job, 2)]
        assert len(recorded) == pytest.approx(4000 * sample, abs=8 * (0 < sample < 1))
    assert tracer.of(f"00-{TRACE}-{SPAN}-00", 7, 1).trace_id == TRACE


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"TRACEPARENT": PARENT}, PARENT),
        ({"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}, f"{PARENT} a=1"),
        ({"TRACESTATE": "a=1"}, None),
        ({"TRACEPARENT": "not one"}, None),
    ],
)
def test_a_program_is_in_the_trace_that_its_variables_name(environment, found):
    assert trace_in(environment) == found


def test_what_is_not_recorded_says_so_with_ids_of_its_own():
    one, other = unrecorded(1), unrecorded(2)
    assert not one.sampled
    assert read_trace(one.text) == one
    assert {one.trace_id, one.span_id}.isdisjoint({other.trace_id, other.span_id})
