"""Batches as parameters: rows as one JSON text, bytes as one BLOB.

One statement then handles the whole batch (`json_each`), so this thread takes the
interpreter's lock from a busy one a few times a batch, not once a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from jobpool.core.jobs.job import NewJob, Progress
from jobpool.core.jobs.uniform_batch import payloads_of

CHUNK_JOBS = 1000
CHUNK_BYTES = 32 * 2**20
"""A chunk is one statement's worth: databases cap the size of one value."""

_encode = msgspec.json.encode


def as_json(values: Iterable[Any]) -> str:
    """Return rows or ids as the text that `json_each` reads.

    Texts must be free of lone surrogates and NUL: see `validation.clean_text`.
    """
    return _encode(list(values)).decode()


def as_json_object(pairs: Iterable[tuple[int, Any]]) -> str:
    """Return a value for each id as the text that `json_each` reads.

    `json_each` returns key and value at once; in a row each column must be extracted.
    """
    return _encode(dict(pairs)).decode()


class Blobs:
    """Concatenated bytes; each part is addressed by its first byte and its length."""

    def __init__(self) -> None:
        # SQLite's substr() of an empty BLOB is NULL, so there is always a byte.
        self._parts = [b"\0"]
        self._end = 2

    def add(self, part: bytes | None) -> tuple[int | None, int | None]:
        """Append *part*; return where it is: first byte from 1, and length."""
        if part is None:
            return None, None
        first = self._end
        self._parts.append(part)
        self._end += len(part)
        return first, len(part)

    def add_all(self, parts: Sequence[bytes]) -> tuple[list[int], list[int]]:
        """Append *parts*; return the first byte of each, and the length of each."""
        lengths = [*map(len, parts)]
        *firsts, self._end = accumulate(lengths, initial=self._end)
        self._parts += parts
        return firsts, lengths

    def joined(self) -> bytes:
        """Return everything that was added."""
        return b"".join(self._parts)


def chunks(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """Split jobs, in order, into chunks bounded in number and payload bytes."""
    start, size = 0, 0
    for index, length in enumerate(map(len, payloads_of(jobs))):
        size += length
        if index > start and (index - start >= CHUNK_JOBS or size > CHUNK_BYTES):
            yield jobs[start:index]
            start, size = index, length
    if start < len(jobs):
        yield jobs[start:]


def newest_beats(beats: Iterable[Progress]) -> list[Progress]:
    """Merge the reports of each lease into one; newer values win."""
    newest: dict[tuple[int, int], Progress] = {}
    for beat in beats:
        before = newest.get((beat.id, beat.token))
        if before is not None:
            beat = Progress(  # noqa: PLW2901 - the merged one takes its place
                beat.id,
                beat.token,
                before.progress if beat.progress is None else beat.progress,
                before.checkpoint if beat.checkpoint is None else beat.checkpoint,
                before.rss_bytes if beat.rss_bytes is None else beat.rss_bytes,
                before.output if beat.output is None else beat.output,
            )
        newest[beat.id, beat.token] = beat
    return list(newest.values())
