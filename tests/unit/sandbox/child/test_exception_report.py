"""What an attempt leaves is cleaned before anybody else has it."""

import msgspec
import pytest

from jobpool.sandbox.child.exception_report import (
    MESSAGE_MAX_CHARS,
    TRACEBACK_MAX_CHARS,
    described,
    failed,
    redacted,
)
from jobpool.sandbox.protocol.messages import OUTPUT_MAX_BYTES, Done, RunJob
from jobpool.sandbox.protocol.validation import screened

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


def test_what_grows_keeps_to_its_caps():
    """A child whose report is too long would be taken for a broken one."""
    secrets = ["4711", "reda", "acte"]
    error = failed("ValueError", "4711" * (MESSAGE_MAX_CHARS // 4))
    error = msgspec.structs.replace(
        error, traceback="4711" * (TRACEBACK_MAX_CHARS // 4)
    )
    full = b"\xff4711" * (OUTPUT_MAX_BYTES // 5) + b" the end"
    output, clean = redacted(full, error, JOB, lambda *_: secrets)
    assert len(output) <= OUTPUT_MAX_BYTES
    assert output.endswith(b"[redacted] the end")
    assert len(clean.message) <= 2 * MESSAGE_MAX_CHARS
    assert len(clean.traceback) <= TRACEBACK_MAX_CHARS
    done = Done(
        seq=1,
        token=1,
        ok=False,
        result=b"",
        duration_s=0.0,
        cpu_s=0.0,
        rss_bytes=0,
        peak_rss_bytes=0,
        output=output,
        error=clean,
    )
    caps = {"result_max_bytes": 1, "checkpoint_max_bytes": 1}
    assert screened([done], **caps, wrong_with=lambda _: None) == ([done], None)


@pytest.mark.parametrize("chars", [MESSAGE_MAX_CHARS, 3 * TRACEBACK_MAX_CHARS])
def test_a_text_longer_than_what_is_kept_is_left_out(chars):
    """Cut first, none of it would be found, and its beginning or end be kept."""
    letter = "".join(f"{n:08}" for n in range(chars // 8 + 1))
    error = described(ValueError(f"cannot read {letter}"))
    output = b"[9 bytes before this left out]\n" + letter[9:].encode()
    output, clean = redacted(output, error, JOB, lambda *_: [letter])
    assert clean.message == "cannot read [redacted]"
    assert clean.traceback.endswith("ValueError: cannot read [redacted]\n")
    assert output == b"[9 bytes before this left out]\n[redacted]"


def test_a_message_that_is_no_plain_text_is_described():
    """Its methods are the user's: none of them is called later."""

    class Text(str):
        __slots__ = ()

        def encode(self, *_):
            raise SystemExit

    class Odd(Exception):
        def __str__(self):
            return Text("odd")

    _, clean = redacted(b"", described(Odd()), JOB, lambda *_: [])
    assert (type(clean.message), clean.message) == (str, "odd")


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
