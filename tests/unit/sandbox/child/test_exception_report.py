"""What an attempt leaves is cleaned before anybody else has it."""

import pytest

from jobpool.sandbox.child.exception_report import failed, redacted
from jobpool.sandbox.protocol.messages import RunJob

JOB = RunJob(
    seq=1,
    id=1,
    token=1,
    kind="k",
    attempt=1,
    payload=b"{}",
    checkpoint=None,
    timeout_s=1.0,
    soft_timeout_s=None,
)


def test_texts_that_nobody_is_shown_are_left_out():
    """Of output, message and traceback; the class stays."""
    error = failed("ValueError", "bad 4711")
    output, clean = redacted(b"\xffpaying 4711", error, JOB, lambda *_: ["4711"])
    assert output.decode() == "\ufffdpaying [redacted]"
    assert (clean.classes, clean.message) == (["ValueError"], "bad [redacted]")


def test_nothing_is_looked_for_where_nothing_was_said():
    """A success without output costs nothing."""
    assert redacted(b"", None, JOB, None) == (b"", None)


@pytest.mark.parametrize(
    "failure", [ValueError("4711"), MemoryError(), RecursionError()]
)
def test_if_it_cannot_be_cleaned_nothing_is_kept(failure):
    """But the class, which rules go by."""

    def failing(kind, payload):
        assert (kind, payload) == ("k", b"{}")
        raise failure

    output, error = redacted(b"4711", failed("ValueError", "4711"), JOB, failing)
    assert (output, error.classes, error.traceback) == (b"", ["ValueError"], "")
    assert error.message == f"<it could not be redacted: {type(failure).__name__}>"
