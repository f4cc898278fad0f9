"""Codecs: what an application's data passes through before it is stored, and after.

Theory of operation. A codec turns bytes into bytes, and only clients and children have
it. What it returns is stored as text, ``encoded:`` and base64, and as that text's JSON
where a column holds JSON. So stores, supervisors and views hold what they always do,
text or JSON, and need no case of their own; and each value says whether it is encoded.
Which codec it was is in the job's row. In a row without one, nothing is encoded.

Nothing here names a value, a key, or what a codec said when it failed.
"""

from __future__ import annotations

import binascii
import re
from typing import Any, Protocol, runtime_checkable

from jobpool.errors import CodecMismatch, ConfigError, SoftMemory, SoftTimeout

PREFIX = "encoded:"
_JSON_PREFIX = f'"{PREFIX}'.encode()
_NULL = b"null"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Valid names of codecs."""


@runtime_checkable
class Codec(Protocol):
    """Encodes what an application stores, and decodes it; for ``JobPool(codec=)``.

    Its methods are called in several threads at once, and in forked processes. What
    they raise is never stored or logged with its text.

    """

    @property
    def name(self) -> str:
        """Stored with each job: 1 to 64 letters, digits or ``_ . -``.

        A codec that cannot read what another has written needs a name of its own.
        """
        ...

    def encode(self, data: bytes, /) -> bytes:
        """Return what is to be stored instead of *data*."""
        ...

    def decode(self, data: bytes, /) -> bytes:
        """Return what `encode` was given; raise whatever, if that cannot be told."""
        ...


def checked_codec(codec: Any) -> Codec | None:
    """Return what ``JobPool(codec=)`` was given.

    Raises:
        ConfigError: it is no codec.
    """
    if codec is None:
        return None
    if isinstance(codec, type) or not isinstance(codec, Codec):
        got = codec.__name__ if isinstance(codec, type) else type(codec).__name__
        raise ConfigError(
            "codec: expected an object with name, encode and decode, such as "
            f"FernetCodec.from_environment(), got {got}"
        )
    name: object = codec.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            "codec: its name is not valid; expected 1 to 64 letters, digits or any of "
            "_ . -, such as 'fernet'"
        )
    return codec


def is_encoded(text: str | None) -> bool:
    """Say whether a stored text is encoded."""
    return text is not None and text.startswith(PREFIX)


def is_encoded_json(value: bytes | None) -> bool:
    """Say whether a stored JSON value is encoded."""
    return value is not None and value.startswith(_JSON_PREFIX)


def encode_text(codec: Codec, data: bytes) -> str:
    """Return the text to store.

    Raises:
        TypeError: the codec did not return bytes.
        Exception: whatever the codec raised.
    """
    encoded: object = codec.encode(data)
    if not isinstance(encoded, bytes):
        raise TypeError(
            f"codec {codec.name!r}: expected bytes from its encode, got "
            f"{type(encoded).__name__}; nothing was stored"
        )
    return PREFIX + binascii.b2a_base64(encoded, newline=False).decode()


def encode_json(codec: Codec, value: bytes) -> bytes:
    """Return the JSON to store; null stays null, which is not stored at all.

    Raises:
        Exception: whatever the codec raised.
    """
    return value if value == _NULL else b'"%b"' % encode_text(codec, value).encode()


def decode_text(codec: Codec | None, text: str, name: str | None) -> str:
    """Return a text of a job as it was before it was encoded, if it was.

    Args:
        codec: the application's, if it has one.
        text: as stored.
        name: the codec in the job's row; None: nothing is encoded.

    Raises:
        CodecMismatch: it needs another codec or key.
    """
    if name is None or not is_encoded(text):
        return text
    return _decoded(codec, text, name).decode("utf-8", "replace")


def decode_json(codec: Codec | None, value: bytes, name: str | None) -> bytes:
    """Return a JSON value of a job as `decode_text` does a text."""
    if name is None or not is_encoded_json(value):
        return value
    return _decoded(codec, value[1:-1].decode("utf-8", "replace"), name)


def too_large(size_bytes: int, most: int) -> str:
    """Say that a result, as encoded, is over ``result_max``."""
    return (
        f"the result takes {size_bytes:,} bytes as encoded by the codec; at most "
        f"{most:,} are kept: store the data elsewhere and return a reference to it, or "
        "raise result_max"
    )


def missing_codec(codec: Codec | None, name: str) -> str:
    """Say in what way an application lacks the codec of this name; "": it has it."""
    if codec is not None and codec.name == name:
        return ""
    has = "none" if codec is None else f"{codec.name!r}"
    return (
        f"it is encoded with the codec {name[:64]!r}, and this application has {has}; "
        "JobPool(codec=...) names it"
    )


def _decoded(codec: Codec | None, text: str, name: str) -> bytes:
    problem = missing_codec(codec, name)
    if codec is not None and not problem:
        try:
            data = codec.decode(binascii.a2b_base64(text[len(PREFIX) :]))
        except (SoftTimeout, SoftMemory, MemoryError):
            raise  # the handler's, not the codec's
        except Exception as exc:  # noqa: BLE001 - a codec may raise anything
            failure = type(exc).__name__
        else:
            if type(data) is bytes:
                return data
            failure = f"it returned {type(data).__name__}, not bytes"
        problem = (
            f"the codec {name!r} of this application cannot decode it ({failure}): it "
            "has another key, or what is stored was changed"
        )
    # Raised out here: a chained cause could carry a key.
    raise CodecMismatch(problem)
