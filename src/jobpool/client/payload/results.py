"""A handler's results: encoded for the store, and decoded again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from jobpool.client.payload.annotations import annotations_of
from jobpool.client.payload.strict_json import NotJson, encode, from_plain
from jobpool.core.units import show_size
from jobpool.errors import ConfigError, ResultTooLarge, StoreError


class Results:
    """The results of one handler.

    Args:
        function: the handler's function.
        kind: its kind, for messages.
    """

    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        self._function = function
        self._kind = kind

    def encode(self, value: Any, max_bytes: int) -> bytes:
        """Return a result as JSON.

        Raises:
            TypeError: it cannot be encoded as JSON.
            ResultTooLarge: it is longer than *max_bytes*.
        """
        return encode_result(value, self._kind, max_bytes)

    def decode(self, encoded: bytes | None) -> Any:
        """Return a stored result as the annotated type, or as plain JSON if it differs.

        A result of an older version of the handler may not fit the annotation.

        Raises:
            StoreError: as for `decode_plain`.
        """
        if encoded is not None and self._decoder is not None:
            with contextlib.suppress(msgspec.DecodeError):
                return self._decoder.decode(encoded)
        return decode_plain(encoded)

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any] | None:
        """A decoder for the annotated type, if it can be decoded from JSON."""
        try:
            annotation = annotations_of(self._function, self._kind).get("return", Any)
            return msgspec.json.Decoder(annotation, dec_hook=from_plain)
        except (ConfigError, TypeError):
            return None


def encode_result(value: Any, kind: str, max_bytes: int) -> bytes:
    """Encode a result of a handler of this kind; as `Results.encode`."""
    try:
        encoded = encode(value)
    except NotJson as exc:
        raise TypeError(
            f"the result of {kind} cannot be stored: {exc}; return JSON "
            "values, or store it elsewhere and return a reference to it"
        ) from None
    if len(encoded) > max_bytes:
        raise ResultTooLarge(
            f"the result of {kind} takes {len(encoded):,} bytes as JSON, "
            f"at most {max_bytes:,} ({show_size(max_bytes)}) are allowed; store it "
            "elsewhere and return a reference to it, or raise result_max"
        )
    return encoded


def decode_plain(encoded: bytes | None) -> Any:
    """Return a stored result as plain JSON values; None if there is none.

    Raises:
        StoreError: it is not JSON; the job is unchanged.
    """
    if encoded is None:
        return None
    try:
        return msgspec.json.decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise StoreError(
            f"the stored result of {len(encoded):,} bytes is not JSON ({exc}), so "
            "jobpool did not encode it: the handler's process forged it, or the "
            "database was changed by hand. Run the job again to get a result"
        ) from exc
