"""A child's side of a codec: what it reads, and that what it sends is encoded."""

import msgspec
import pytest

from jobpool.core.application.codec import decode_text, encode_json, is_encoded
from jobpool.errors import ArgumentsMisfit
from jobpool.sandbox.child.encoding import PLAIN, Encoding
from jobpool.sandbox.protocol.messages import OUTPUT_MAX_BYTES, Raised, RunJob
from jobpool.sandbox.protocol.validation import TEXT_MAX_CHARS

SECRET = "4711"


class Swapping:
    """A codec of no secrecy, whose text differs from what it encodes."""

    name = "swapping"

    def encode(self, data):
        return data.swapcase() + b"!"

    def decode(self, data):
        if not data.endswith(b"!"):
            raise ValueError(SECRET)
        return data[:-1].swapcase()


class Failing(Swapping):
    """Its key server is gone."""

    def encode(self, data):
        raise ConnectionError(f"no answer for {data!r}")


def job(codec="swapping", **changes):
    fields = {"payload": b'{"a":1}', "checkpoint": None, **changes}
    if codec:
        fields = {k: v and encode_json(Swapping(), v) for k, v in fields.items()}
    return RunJob(
        1, 1, 1, "pay", 1, timeout_s=1, soft_timeout_s=None, codec=codec, **fields
    )


def error(**changes):
    fields = {"message": f"no card {SECRET}", "traceback": f"Traceback {SECRET}"}
    return Raised(classes=["ValueError"], **{**fields, **changes})


def read(text):
    return decode_text(Swapping(), text, "swapping")


def test_a_plain_job_passes_unchanged():
    """Nothing is done for it at all."""
    plain = job(codec=None)
    raised = error()
    assert PLAIN.opened(plain) is plain
    assert PLAIN.result(b"1") == b"1"
    assert PLAIN.output(b"x") == b"x"
    assert PLAIN.error(raised) is raised
    assert PLAIN.error(None) is None


def test_payload_and_checkpoint_are_decoded():
    encoding = Encoding(Swapping(), "swapping")
    opened = encoding.opened(job(checkpoint=b'"page 3"'))
    assert (opened.payload, opened.checkpoint) == (b'{"a":1}', b'"page 3"')
    assert encoding.opened(job()).checkpoint is None


@pytest.mark.parametrize(
    ("codec", "name", "changes"),
    [
        (None, "swapping", {}),
        (Swapping(), "other", {}),
        (Swapping(), "swapping", {"payload": b'"encoded:AAA="'}),
        (Swapping(), "swapping", {"checkpoint": b'"encoded:AAA="'}),
    ],
    ids=["no codec", "another codec", "another key", "another key for the checkpoint"],
)
def test_what_cannot_be_read_is_a_misfit_in_plain_words(codec, name, changes):
    """It is handed to another supervisor, with a reason that holds no content."""
    encoding = Encoding(codec, name)
    unreadable = msgspec.structs.replace(job(), **changes)
    with pytest.raises(ArgumentsMisfit, match="cannot be read here") as caught:
        encoding.opened(unreadable)
    assert SECRET not in str(caught.value)
    told = error(message=str(caught.value), traceback="")
    assert encoding.error(told) is told
    assert b"said" not in encoding.output(b"said before")


def test_what_an_attempt_says_is_encoded():
    """But the class of its exception, by which rules go."""
    encoding = Encoding(Swapping(), "swapping")
    encoding.opened(job())
    sent = encoding.error(error())
    assert sent.classes == ["ValueError"]
    assert read(sent.message) == f"no card {SECRET}"
    assert read(sent.traceback) == f"Traceback {SECRET}"
    assert read(encoding.output(b"Out\xff").decode()) == "Out\ufffd"
    assert encoding.result(b'"r"') == encode_json(Swapping(), b'"r"')
    assert encoding.result(b"null") == b"null"
    assert encoding.result(7) == 7
    assert encoding.output(b"") == b""
    assert encoding.error(error(message="", traceback="")).message == ""


def test_what_cannot_be_encoded_is_not_sent():
    """The attempt has ended all the same."""
    encoding = Encoding(Failing(), "swapping")
    sent = encoding.error(error())
    assert sent.message == "its text could not be encoded with 'swapping'"
    assert sent.traceback == ""
    assert encoding.output(b"x") == b""
    with pytest.raises(ConnectionError):
        encoding.result(b"1")


@pytest.mark.parametrize("growth", [1, 3, 100])
def test_the_end_of_a_long_text_stays_within_the_caps(growth):
    """However much a codec adds."""

    class Growing(Swapping):
        def encode(self, data):
            return data * growth

        def decode(self, data):
            return data[: len(data) // growth]

    encoding = Encoding(Growing(), "swapping")
    output = encoding.output(b"x" * OUTPUT_MAX_BYTES + b"the end")
    assert len(output) <= OUTPUT_MAX_BYTES
    assert decode_text(Growing(), output.decode(), "swapping").endswith("the end")
    sent = encoding.error(error(traceback="é" * TEXT_MAX_CHARS + "the end"))
    assert len(sent.traceback) <= TEXT_MAX_CHARS
    assert decode_text(Growing(), sent.traceback, "swapping").endswith("the end")


def test_a_codec_without_bound_keeps_nothing():
    class Bloating(Swapping):
        def encode(self, data):
            return b"x" * 2**20

    encoding = Encoding(Bloating(), "swapping")
    assert encoding.output(b"abc" * 100) == b""
    assert not is_encoded(encoding.error(error()).message)
