"""Encoding: what passes through the application's codec on its way to and from a store.

A codec may encode the same arguments differently each time, so no store can compare
two encoded payloads. If the key of a new job is held, the store refuses it and says by
which payload. Here both are decoded; if they are the same, the job is sent once more
with the holder's payload beside its own, by which the store knows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jobpool.core.application.codec import (
    Codec,
    checked_codec,
    decode_json,
    decode_text,
    encode_json,
    too_large,
)
from jobpool.core.jobs.job import Attempt, Enqueued, Job, NewJob
from jobpool.core.units import show_size
from jobpool.errors import (
    ArgumentsRejected,
    CodecMismatch,
    KeyConflict,
    ResultTooLarge,
)

_JSON = ("result", "progress", "checkpoint")
_TEXTS = ("error", "traceback", "output")


class Encoding:
    """An application's codec, if it has one.

    Args:
        codec: as ``JobPool(codec=)`` was given it.

    Raises:
        ConfigError: it is no codec.
    """

    def __init__(self, codec: Any = None) -> None:
        self.codec: Codec | None = checked_codec(codec)
        self.name: str | None = None if self.codec is None else self.codec.name
        """Stored with each job; None: there is no codec."""

    def payload(self, payload: bytes, kind: str, max_bytes: int) -> bytes:
        """Return a job's arguments as they are stored.

        Raises:
            ArgumentsRejected: encoded, they take more than *max_bytes*.
            Exception: whatever the codec raised.
        """
        if self.codec is None:
            return payload
        encoded = encode_json(self.codec, payload)
        if len(encoded) > max_bytes:
            raise ArgumentsRejected(
                f"arguments of {kind} are refused, nothing was enqueued: they take "
                f"{len(encoded):,} bytes as encoded by the codec, at most "
                f"{max_bytes:,} ({show_size(max_bytes)}) are allowed; store the data "
                "elsewhere and send a reference to it, or raise payload_max"
            )
        return encoded

    def result(self, result: bytes, max_bytes: int) -> bytes:
        """Return a result as it is stored.

        Raises:
            ResultTooLarge: encoded, it takes more than *max_bytes*.
            Exception: whatever the codec raised.
        """
        if self.codec is None:
            return result
        encoded = encode_json(self.codec, result)
        if len(encoded) > max_bytes:
            raise ResultTooLarge(too_large(len(encoded), max_bytes))
        return encoded

    def decoded(self, value: bytes, name: str | None) -> bytes:
        """Return a stored JSON value as it was before it was encoded.

        Args:
            value: as stored.
            name: the codec in its job's row; None: nothing is encoded.

        Raises:
            CodecMismatch: it needs another codec or key.
        """
        return decode_json(self.codec, value, name)

    def text(self, text: str, name: str | None) -> str:
        """Return a stored text as it was before it was encoded; as `decoded`."""
        return decode_text(self.codec, text, name)

    def job(self, job: Job) -> Job:
        """Return a job with everything decoded.

        Raises:
            CodecMismatch: it needs another codec or key.
        """
        return job if job.codec is None else self._opened(job, job.codec)

    def attempts(self, attempts: Sequence[Attempt], name: str | None) -> list[Attempt]:
        """Return attempts of a job with everything decoded; as `job`."""
        if name is None:
            return list(attempts)
        return [self._opened(one, name) for one in attempts]

    def enqueue(
        self,
        store: Callable[[Sequence[NewJob]], list[Enqueued]],
        jobs: Sequence[NewJob],
    ) -> list[Enqueued]:
        """Store jobs; a key that is held by the same arguments is no conflict.

        Args:
            store: stores them, or raises.
            jobs: with this codec's payloads.

        Raises:
            KeyConflict: a key is held by a job with other arguments.
            JobpoolError: what *store* raises; nothing was stored.
        """
        while True:
            try:
                return store(jobs)
            except KeyConflict as exc:
                if not exc.encoded:
                    raise
                same = self._same(exc)
            jobs = [
                msgspec.structs.replace(
                    job, same_payloads=job.same_payloads + same.get(job.payload, ())
                )
                for job in jobs
            ]

    def _same(self, conflict: KeyConflict) -> dict[bytes, tuple[bytes, ...]]:
        """Return the payloads of keys' holders, by the new payload that equals them.

        Raises:
            KeyConflict: some are not the same, or it cannot be told.
        """
        same: dict[bytes, tuple[bytes, ...]] = {}
        for job_id, held, codec, new in conflict.encoded:
            try:
                is_same = self.decoded(held, codec) == self.decoded(new, self.name)
            except CodecMismatch as exc:
                raise KeyConflict(
                    f"key: this idempotency key was used for {_name(job_id)}, and "
                    f"whether with the same arguments cannot be told: {exc}. Use "
                    "another key, or enqueue it where that can be read. Nothing was "
                    "enqueued",
                    job_id,
                ) from None
            if not is_same:
                raise KeyConflict(
                    f"key: this idempotency key was used for {_name(job_id)} with "
                    "other arguments; use another key, or the same arguments. Nothing "
                    "was enqueued",
                    job_id,
                ) from None
            same[new] = (*same.get(new, ()), held)
        return same

    def _opened(self, record: Any, name: str) -> Any:
        fields: dict[str, Any] = {}
        for field in record.__struct_fields__:
            value = getattr(record, field)
            if value is not None and field in _JSON:
                fields[field] = decode_json(self.codec, value, name)
            elif value is not None and field in _TEXTS:
                fields[field] = decode_text(self.codec, value, name)
        return msgspec.structs.replace(record, **fields)


def _name(job_id: int) -> str:
    return f"job {job_id}" if job_id else "an earlier job of this call"
