"""Codecs: how what they return is stored, and what is said of their failures."""

import json

import pytest

from jobpool.core.application.codec import (
    checked_codec,
    decode_json,
    decode_text,
    encode_json,
    encode_text,
    is_encoded,
    is_encoded_json,
)
from jobpool.core.application.handler_spec import codec_in, with_codec
from jobpool.errors import CodecMismatch, ConfigError, SoftMemory, SoftTimeout

SECRET = "4711-secret"


class Reversing:
    """A codec that anybody can read, to see that it was used."""

    name = "reversing"

    def encode(self, data):
        return data[::-1] + b"\0\xff"

    def decode(self, data):
        if not data.endswith(b"\0\xff"):
            raise ValueError(f"no: {data!r} {SECRET}")
        return data[-3::-1]


class Raising(Reversing):
    """A codec that cannot decode, and says too much."""

    def __init__(self, error):
        self.error = error

    def decode(self, data):
        raise self.error


@pytest.mark.parametrize("value", [b"{}", b'"x"', b"[1,2]", b'{"a":"\xc3\xa9"}'])
def test_an_encoded_value_is_json_and_text_in_any_column(value):
    stored = encode_json(Reversing(), value)
    assert is_encoded_json(stored)
    assert is_encoded(json.loads(stored))
    assert decode_json(Reversing(), stored, "reversing") == value
    text = encode_text(Reversing(), value)
    assert text.isascii()
    assert text.isprintable()
    assert decode_text(Reversing(), text, "reversing") == value.decode()


def test_null_stays_null():
    """It is not stored at all."""
    assert encode_json(Reversing(), b"null") == b"null"


def test_a_job_without_a_codec_is_plain_whatever_it_looks_like():
    """Nobody makes an application decode what was never encoded."""
    stored = encode_json(Reversing(), b"{}")
    assert decode_json(Reversing(), stored, None) == stored
    assert decode_text(Reversing(), "encoded:AAA=", None) == "encoded:AAA="


def test_what_is_plain_in_the_job_of_a_codec_is_read_as_it_is():
    """A reason of jobpool's own, or the record that a hook gets."""
    assert decode_json(Reversing(), b'{"job":1}', "reversing") == b'{"job":1}'
    assert decode_text(Reversing(), "killed", "reversing") == "killed"


@pytest.mark.parametrize(
    ("codec", "name", "said"),
    [
        (None, "fernet", "'fernet', and this application has none"),
        (Reversing(), "fernet", "'fernet', and this application has 'reversing'"),
        (Raising(ValueError(SECRET)), "reversing", "cannot decode it (ValueError)"),
        (Raising(KeyError(SECRET)), "reversing", "cannot decode it (KeyError)"),
    ],
)
def test_what_cannot_be_decoded_is_named_without_content(codec, name, said):
    """Neither what is stored nor what the codec said of it."""
    stored = encode_json(Reversing(), json.dumps(SECRET).encode())
    with pytest.raises(CodecMismatch) as caught:
        decode_json(codec, stored, name)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "text",
    ["encoded:", "encoded:?", "encoded:A", "encoded:AAA=", "encoded:é", "encoded:\0"],
)
def test_hostile_text_is_a_mismatch(text):
    """Whatever is written into the row."""
    with pytest.raises(CodecMismatch):
        decode_text(Reversing(), text, "reversing")
    with pytest.raises(CodecMismatch):
        decode_json(Reversing(), f'"{text}"'.encode(), "reversing")


@pytest.mark.parametrize("returned", ["text", None, [1], bytearray(b"x")])
def test_a_codec_must_return_bytes(returned):
    """Neither side guesses what else was meant."""
    codec = Reversing()
    stored = encode_text(codec, b"x")
    codec.decode = codec.encode = lambda data: returned
    name = type(returned).__name__
    with pytest.raises(CodecMismatch, match=f"it returned {name}, not bytes"):
        decode_text(codec, stored, "reversing")
    with pytest.raises(TypeError, match=f"bytes from its encode, got {name}; nothing"):
        encode_json(codec, b"{}")


@pytest.mark.parametrize("error", [SoftTimeout(), SoftMemory(), MemoryError()])
def test_a_soft_limit_passes_through(error):
    """It is the handler's, which may be reading a job just then."""
    with pytest.raises(type(error)):
        decode_text(Raising(error), encode_text(Reversing(), b"x"), "reversing")


@pytest.mark.parametrize("name", [None, "", "a b", "x" * 65, b"fernet", "é"])
def test_a_codec_needs_a_short_name(name):
    codec = Reversing()
    codec.name = name
    with pytest.raises(ConfigError, match="name is not valid"):
        checked_codec(codec)


@pytest.mark.parametrize("codec", [object(), "fernet", Reversing, lambda data: data])
def test_what_is_no_codec_is_refused(codec):
    with pytest.raises(ConfigError, match="expected an object with name, encode and"):
        checked_codec(codec)


def test_no_codec_is_none():
    assert checked_codec(None) is None


def test_a_published_schema_names_the_codec_and_its_keys():
    """Supervisors that cannot read each other's jobs have different versions."""
    schema = b'{"type":"object"}'
    assert with_codec(schema, None) is schema
    assert codec_in(schema) is None
    codec = Reversing()
    plain = with_codec(schema, codec)
    assert codec_in(plain) == "reversing"
    assert json.loads(plain)["type"] == "object"
    codec.version = "1"
    first = with_codec(schema, codec)
    codec.version = "2"
    assert len({plain, first, with_codec(schema, codec)}) == 3


@pytest.mark.parametrize("schema", [b"[]", b'{"x-jobpool-codec":7}', b"1"])
def test_a_schema_that_a_hand_has_written_names_no_codec(schema):
    assert codec_in(schema) is None
