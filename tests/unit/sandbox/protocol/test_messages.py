"""Frames: whole messages come out, however the bytes arrive."""

import pytest

from jobpool.sandbox.protocol.messages import (
    FRAME_MAX_BYTES,
    Beat,
    Decoder,
    Done,
    FrameError,
    FromChild,
    Go,
    Retire,
    RunJob,
    ToChild,
    encode,
)

BEAT = Beat(7, b"0.5", None)


def test_messages_survive_the_journey():
    """What is encoded comes out as an equal message of its type."""
    decoder = Decoder(FromChild)
    assert list(decoder.feed(encode(BEAT) + encode(BEAT))) == [BEAT, BEAT]
    assert len(decoder._buffer) == 0


def test_an_incomplete_frame_waits_for_the_rest():
    """Bytes may arrive one by one; nothing comes out before a frame is whole."""
    decoder = Decoder(FromChild)
    frame = encode(BEAT)
    for byte in frame[:-1]:
        assert list(decoder.feed(bytes([byte]))) == []
    assert len(decoder._buffer) == len(frame) - 1
    assert list(decoder.feed(frame[-1:])) == [BEAT]


def test_a_message_that_is_too_long_is_not_encoded():
    """A message over the cap raises before anything is sent."""
    with pytest.raises(FrameError, match="over"):
        encode(Beat(1, b"x" * FRAME_MAX_BYTES, None))


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        (FRAME_MAX_BYTES + 1).to_bytes(4, "little"),
        b"\x01\x00\x00\x00\xc1",
        b"\x00\x00\x00\x00",
        b"\x02\x00\x00\x00{}",
        encode(Retire()),
        encode(Go("a", "b", 0, 0, 0, "")),
        encode({"type": "done"}),
        encode(["done", 1]),
        encode([[[[]]]]),
    ],
)
def test_garbage_raises_frame_error_only(garbage):
    """Anything else raises FrameError, including the other side's messages."""
    with pytest.raises(FrameError):
        list(Decoder(FromChild).feed(garbage))


def test_an_announced_length_costs_no_memory():
    """No memory is allocated for a frame that announces much and sends little."""
    decoder = Decoder(FromChild)
    assert list(decoder.feed(FRAME_MAX_BYTES.to_bytes(4, "little"))) == []
    assert len(decoder._buffer) == 4


def test_messages_before_garbage_are_delivered():
    """Messages before the broken one come out first."""
    decoder = Decoder(FromChild)
    got = []
    with pytest.raises(FrameError):
        got.extend(decoder.feed(encode(BEAT) + b"\x01\x00\x00\x00\xc1"))
    assert got == [BEAT]


def test_payloads_stay_opaque():
    """Payloads and results are bytes on both sides, not JSON or text."""
    job = RunJob(1, 2, 3, "k", 1, b"\xff\x00", None, 1.0, None)
    assert next(iter(Decoder(ToChild).feed(encode(job)))).payload == b"\xff\x00"
    done = Done(1, 2, True, b"\xfe", 0.0, 0.0, 0, 0)
    assert next(iter(Decoder(FromChild).feed(encode(done)))).result == b"\xfe"
