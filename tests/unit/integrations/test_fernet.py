"""FernetCodec: keys, their rotation, and that no message shows one."""

import pytest
from cryptography.fernet import Fernet, InvalidToken

from jobpool.core.application.codec import Codec, checked_codec
from jobpool.errors import ConfigError
from jobpool.integrations.fernet import KEYS_VARIABLE, FernetCodec

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


def test_it_is_a_codec():
    codec = FernetCodec([NEW])
    assert isinstance(codec, Codec)
    assert checked_codec(codec) is codec


@pytest.mark.parametrize("data", [b"", b"{}", b"\0\xff" * 99, b"x" * 2**20])
def test_what_is_encoded_is_decoded(data):
    """And is something else each time."""
    codec = FernetCodec([NEW])
    encoded = codec.encode(data)
    assert codec.decode(encoded) == data
    assert encoded != codec.encode(data)
    assert not data or data not in encoded


def test_after_a_rotation_both_keys_decode_and_the_first_encodes():
    before, between = FernetCodec([OLD]), FernetCodec([NEW, OLD])
    assert between.decode(before.encode(b"x")) == b"x"
    assert FernetCodec([NEW]).decode(between.encode(b"x")) == b"x"
    with pytest.raises(InvalidToken):
        before.decode(between.encode(b"x"))


def test_a_changed_byte_is_refused():
    codec = FernetCodec([NEW])
    encoded = bytearray(codec.encode(b"x"))
    encoded[20] ^= 1
    with pytest.raises(InvalidToken):
        codec.decode(bytes(encoded))


def test_sets_of_keys_have_versions_of_their_own():
    """Whatever their order: the same keys decode the same."""
    versions = {FernetCodec(keys).version for keys in ([OLD], [NEW], [NEW, OLD])}
    assert len(versions) == 3
    assert FernetCodec([OLD, NEW.encode()]).version in versions


@pytest.mark.parametrize(
    "bad",
    [OLD[:-2], "x", "", None, "ä" * 44],
    ids=["cut", "short", "empty", "none", "not ASCII"],
)
def test_a_wrong_key_is_named_by_its_place(bad):
    """Never by what it is, nor in what caused the error."""
    with pytest.raises(ConfigError, match="key 2 of 2 is not valid") as caught:
        FernetCodec([NEW, bad])
    assert NEW not in str(caught.value)
    assert len(bad or "") < 2 or bad not in str(caught.value)
    assert caught.value.__context__ is None


def test_one_key_may_be_given_alone():
    assert FernetCodec(NEW).version == FernetCodec([NEW]).version


def test_no_key_is_refused():
    with pytest.raises(ConfigError, match="there is no key"):
        FernetCodec([])


def test_keys_come_from_the_environment(monkeypatch):
    """Separated by blanks of any kind, newest first."""
    monkeypatch.setenv(KEYS_VARIABLE, f" {NEW}\n{OLD} ")
    codec = FernetCodec.from_environment()
    assert codec.version == FernetCodec([NEW, OLD]).version
    assert FernetCodec([NEW]).decode(codec.encode(b"x")) == b"x"
    for text in ("", "  "):
        monkeypatch.setenv(KEYS_VARIABLE, text)
        with pytest.raises(ConfigError, match=KEYS_VARIABLE):
            FernetCodec.from_environment()


def test_keys_come_from_a_file(tmp_path):
    """One a line, newest first; remarks and empty lines are passed over."""
    path = tmp_path / "keys"
    path.write_text(f"# of November\n{NEW}\n\n{OLD}\n")
    assert FernetCodec.from_file(path).version == FernetCodec([NEW, OLD]).version
    path.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="there is no key"):
        FernetCodec.from_file(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        FernetCodec.from_file(path)
    with pytest.raises(ConfigError, match="No such file"):
        FernetCodec.from_file(tmp_path / "none")


def test_its_text_shows_no_key():
    codec = FernetCodec([NEW, OLD])
    assert repr(codec) == "<FernetCodec with 2 keys>"


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cryptography.fernet", None)
    with pytest.raises(ConfigError, match=r"jobpool\[codec\]"):
        FernetCodec([NEW])
