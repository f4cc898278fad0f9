"""Trace contexts, as W3C's Trace Context has them.

A job keeps the context in which it was enqueued: ``traceparent``, and after a space
``tracestate``, if there is one. An attempt has a context of its own, within the same
trace. Its ids are digests of what identifies it, so nobody has to remember them, and
all attempts of a job that was enqueued in no trace are in one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

UNRECORDED = ""
"""Instead of a context: the attempt's trace is not recorded, and needs no name."""
UNDECIDED = "jobpool=undecided"
"""A ``tracestate``: who has begun the trace left open whether it is recorded. Each who
records decides for itself; the flag counts for nothing."""
TRACE_MAX = 1024
"""Most characters of a stored context."""
STATE_MAX = 512
"""Most characters of a ``tracestate``: what everybody must pass on."""
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_STATE = re.compile(r"[\x20-\x7e]*")
_SAMPLED = 1
_RANGE = 2**64
_GOLDEN = 0x9E3779B97F4A7C15


class TraceContext(NamedTuple):
    """A span, by which others that follow from it name it."""

    trace_id: str
    """32 hexadecimal digits, not all 0."""
    span_id: str
    """16 hexadecimal digits, not all 0."""
    sampled: bool
    """Whether the trace is recorded."""
    state: str = ""
    """What vendors have added, as they wrote it; "": nothing."""

    @property
    def traceparent(self) -> str:
        """The context as the header of this name."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"

    @property
    def text(self) -> str:
        """The context as it is stored with a job."""
        return f"{self.traceparent} {self.state}" if self.state else self.traceparent


class Tracer(NamedTuple):
    """Names the spans of attempts.

    All of a supervisor's share one.
    """

    key: bytes
    """The store's own, so that two stores have no trace in common; up to 64 bytes."""
    sample: float
    """How many of the traces that begin with a job are recorded: from 0 to 1."""

    def of(self, stored: str | None, job_id: int, token: int) -> TraceContext | None:
        """Return the context of an attempt's span.

        Most attempts of a busy supervisor are in none, so that this must be quick then.

        Args:
            stored: in which context its job was enqueued; None: in none.
            job_id: the job.
            token: the attempt's.

        Returns:
            None: its job begins a trace, and that one is not recorded.
        """
        cause = None if stored is None else read_trace(stored)
        is_open = cause is None or cause.state == UNDECIDED
        # Multiples of the golden ratio are spread evenly, and all attempts agree.
        is_left_out = is_open and job_id * _GOLDEN % _RANGE >= self.sample * _RANGE
        if cause is None and is_left_out:
            return None
        span_id = _digest(f"span {token}", self.key, 8)
        if cause is not None:
            sampled = not is_left_out if is_open else cause.sampled
            return cause._replace(span_id=span_id, sampled=sampled)
        return TraceContext(_digest(f"trace {job_id}", self.key, 16), span_id, True)


def read_trace(text: str | None) -> TraceContext | None:
    """Return a context from its stored text; None: it is none.

    Versions after 00 are read as far as that one goes, as W3C demands. A ``tracestate``
    that cannot be passed on is left out.
    """
    if text is None:
        return None
    parent, _, state = text.partition(" ")
    found = _PARENT.match(parent)
    if found is None:
        return None
    version, trace_id, span_id, flags = found.groups()
    rest = parent[found.end() :]
    is_known = not rest if version == "00" else rest[:1] in {"", "-"}
    if version == "ff" or not is_known or not (int(trace_id, 16) and int(span_id, 16)):
        return None
    if len(state) > STATE_MAX or _STATE.fullmatch(state) is None:
        state = ""
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), state)


def trace_url(link: str | None, context: TraceContext) -> str:
    """Return where people look at a trace; "": nobody has said, or it is not recorded.

    Args:
        link: a URL with ``{trace_id}`` in it; None: there is none.
        context: of a span in the trace.
    """
    if link is None or not context.sampled:
        return ""
    return link.replace("{trace_id}", context.trace_id)


def trace_in(environment: Mapping[str, str]) -> str | None:
    """Return the context that a program was started in, as jobs keep it; None: none.

    By OpenTelemetry's convention: the variables TRACEPARENT and TRACESTATE.
    """
    names = ("TRACEPARENT", "TRACESTATE")
    found = read_trace(" ".join(environment.get(name, "") for name in names).strip())
    return None if found is None else found.text


def unrecorded(token: int) -> TraceContext:
    """Return a context that tells all who ask that nothing is recorded.

    Args:
        token: the attempt's, which makes it another for each.
    """
    trace_id, span_id = (_digest(f"unrecorded {token}", b"", n) for n in (16, 8))
    return TraceContext(trace_id, span_id, sampled=False)


def _digest(text: str, key: bytes, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size, key=key).hexdigest()
