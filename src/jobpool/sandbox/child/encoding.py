"""What an attempt's data passes through in its child: the application's codec, or none.

Only a child has the codec, so what it cannot encode is not sent at all. The class of an
exception stays plain: rules and lists go by it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jobpool.core.application.codec import (
    Codec,
    decode_json,
    encode_json,
    encode_text,
    missing_codec,
)
from jobpool.errors import ArgumentsMisfit, ArgumentsRejected, CodecMismatch
from jobpool.sandbox.protocol.messages import OUTPUT_MAX_BYTES, Raised, RunJob

PROGRESS_MAX_BYTES = 4 * 1024
BEAT_EVERY_S = 0.5
"""Beats without a checkpoint that come faster are delayed."""
_TEXT_MAX_CHARS = 96 * 1024
"""Of an encoded text; what would be longer loses its beginning."""


class Encoding:
    """The encoding of one attempt's data.

    Args:
        codec: the application's, if it has one.
        name: the codec in the job's row; None: everything is plain.
    """

    def __init__(self, codec: Codec | None, name: str | None) -> None:
        self.name = name
        self._problem = "" if name is None else missing_codec(codec, name)
        """Why the job's data cannot be read here; "": it can, as far as is known."""
        self.codec = None if name is None or self._problem else codec

    def opened(self, job: RunJob) -> RunJob:
        """Return a job with payload and checkpoint decoded.

        Raises:
            ArgumentsMisfit: they need another codec or key; nothing of it has run.
        """
        if self.name is None:
            return job
        payload, checkpoint = job.payload, job.checkpoint
        if not self._problem:
            try:
                payload = decode_json(self.codec, payload, self.name)
                if checkpoint is not None:
                    checkpoint = decode_json(self.codec, checkpoint, self.name)
            except CodecMismatch as exc:
                self._problem = str(exc)
        if self._problem:
            raise ArgumentsMisfit(f"the job cannot be read here: {self._problem}")
        return msgspec.structs.replace(job, payload=payload, checkpoint=checkpoint)

    def result(self, result: Any) -> Any:
        """Return the result to send; what is no bytes stays what it is.

        Raises:
            Exception: whatever the codec raised.
        """
        if self.codec is None or not isinstance(result, bytes):
            return result
        return encode_json(self.codec, result)

    def value(self, what: str, value: Any, max_bytes: int) -> bytes | None:
        """Return what a handler reports of itself, to be stored; None stays None.

        Args:
            what: its name, for the message.
            value: it.
            max_bytes: most bytes, encoded.

        Raises:
            ArgumentsRejected: it is not JSON or too large.
        """
        if value is None:
            return None
        try:
            encoded = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as exc:
            raise ArgumentsRejected(f"{what} cannot be written as JSON: {exc}") from exc
        if self.codec is not None:
            encoded = encode_json(self.codec, encoded)
        if len(encoded) > max_bytes:
            raise ArgumentsRejected(
                f"{what} is {len(encoded)} bytes of JSON; at most {max_bytes} are "
                "kept: store the data elsewhere and a reference to it here"
            )
        return encoded

    def output(self, output: bytes) -> bytes:
        """Return the output to send; b"": it could not be encoded."""
        if self.name is None or not output:
            return output
        return (self._text(output, OUTPUT_MAX_BYTES) or "").encode()

    def error(self, error: Raised | None) -> Raised | None:
        """Return the error to send.

        If the job's data could not be read, the message is jobpool's own, and plain.
        """
        if error is None or self.name is None or self._problem:
            return error
        message = self._text(error.message.encode(), _TEXT_MAX_CHARS)
        return msgspec.structs.replace(
            error,
            message=f"its text could not be encoded with {self.name!r}"
            if message is None
            else message,
            traceback=self._text(error.traceback.encode(), _TEXT_MAX_CHARS) or "",
        )

    def _text(self, data: bytes, most: int) -> str | None:
        """Return the end of a text, encoded; None: the codec failed."""
        if not data or self.codec is None:
            return ""
        data = data[-most:]
        while True:
            try:
                text = encode_text(self.codec, data)
            except BaseException:  # noqa: BLE001 - a codec may raise anything
                return None
            if len(text) <= most:
                return text
            data = data[-(len(data) * 2 // 3) :]
            if len(data) < 2:  # noqa: PLR2004 - it grows without bound
                return None


PLAIN = Encoding(None, None)
