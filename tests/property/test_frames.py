"""Frames under arbitrary bytes and arbitrary cuts."""

from hypothesis import given
from hypothesis import strategies as st

from jobpool.sandbox.protocol.messages import (
    FRAME_MAX_BYTES,
    READ_BYTES,
    READ_MAX_BYTES,
    Ask,
    Beat,
    Decoder,
    Done,
    FrameError,
    FromChild,
    Ready,
    StartFailed,
    encode,
)

MESSAGES = st.lists(
    st.one_of(
        st.from_type(Beat),
        st.from_type(Ready),
        st.from_type(StartFailed),
        st.builds(Ask, st.integers(0, 2**63), st.integers(0, 2**63), st.just([])),
        st.builds(
            Done,
            seq=st.integers(0, 2**63),
            token=st.integers(0, 2**63),
            ok=st.booleans(),
            result=st.binary(max_size=200),
            duration_s=st.floats(0, 1e9),
            cpu_s=st.floats(0, 1e9),
            rss_bytes=st.integers(0, 2**50),
            peak_rss_bytes=st.integers(0, 2**50),
        ),
    ),
    max_size=8,
)


def encodable(messages):
    """Drop what the strategy made but msgpack cannot encode."""
    kept = []
    for message in messages:
        try:
            kept.append((message, encode(message)))
        except (OverflowError, UnicodeEncodeError):
            continue
    return kept


@given(MESSAGES, st.lists(st.integers(1, 50), min_size=1))
def test_any_splitting_gives_the_same_messages(messages, cuts):
    """However a stream is split, the same messages come out in order."""
    pairs = encodable(messages)
    stream = b"".join(frame for _message, frame in pairs)
    decoder = Decoder(FromChild)
    got, at, turn = [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += decoder.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == [message for message, _frame in pairs]
    assert len(decoder._buffer) == 0


@given(st.integers(0, FRAME_MAX_BYTES), st.integers(0, 3 * READ_MAX_BYTES))
def test_reads_are_small_except_for_a_large_message(length, there):
    """Many tiny messages come in small reads; a large one in few reads."""
    decoder = Decoder(FromChild)
    stream = length.to_bytes(4, "little") + bytes(min(there, max(0, length - 1)))
    assert list(decoder.feed(stream[:3])) == []
    assert decoder.wanted_bytes == READ_BYTES
    if length == 0:
        return
    assert list(decoder.feed(stream[3:])) == []
    missing = 4 + length - len(stream)
    wanted = decoder.wanted_bytes
    assert READ_BYTES <= wanted <= READ_MAX_BYTES
    assert wanted <= max(READ_BYTES, missing)
    assert wanted >= min(missing, READ_MAX_BYTES)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_only_ever_raise_frame_error(data):
    """No bytes make the decoder raise anything but FrameError, or hang."""
    try:
        list(Decoder(FromChild).feed(data))
    except FrameError:
        return


@given(st.binary(max_size=200))
def test_arbitrary_bodies_only_ever_raise_frame_error(body):
    """The same for a body that is correctly framed."""
    try:
        list(Decoder(FromChild).feed(len(body).to_bytes(4, "little") + body))
    except FrameError:
        return
