"""What an attempt begins with: results in the place of placeholders, a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jobpool.core.application.placeholders import NoResult, filled, steps_in
from jobpool.core.application.step_results import MemberResult, StepResults
from jobpool.errors import ArgumentsMisfit, CodecMismatch, GiveUp, JobErased

_NULL = b"null"


def with_results(
    payload: bytes,
    read: Callable[[Sequence[int], int], Sequence[MemberResult]],
) -> bytes:
    """Return a payload with the results that it has placeholders for.

    Without placeholders nothing is read.

    Args:
        payload: as JSON, decoded if there is a codec.
        read: returns a page of the results of some steps, after that of a job.

    Raises:
        ArgumentsMisfit: a result needs another codec or key; nothing of the handler
            has run.
        GiveUp: a result is not there, and never will be.
        JobpoolError: what *read* raises.
    """
    numbers = steps_in(payload)
    if not numbers:
        return payload
    found: dict[int, list[bytes]] = {number: [] for number in numbers}
    rows = StepResults(lambda after_id: read(numbers, after_id), lambda row: row)
    try:
        for row in rows:
            found[row.number].append(row.result or _NULL)
        return filled(payload, found)
    except CodecMismatch as exc:
        problem = f"a result of a step before it cannot be read here: {exc}"
    except (NoResult, JobErased) as exc:
        raise GiveUp(f"its arguments are not complete: {exc}") from None
    raise ArgumentsMisfit(problem)  # a chained cause could carry a key


def decoded_checkpoint(checkpoint: bytes | None) -> Any:
    """Return the checkpoint of an earlier attempt; one that is damaged is none."""
    if checkpoint is None:
        return None
    try:
        return msgspec.json.decode(checkpoint)
    except msgspec.DecodeError as exc:
        print(f"jobpool: the stored checkpoint is unreadable: {exc}", file=sys.stderr)  # noqa: T201 - into the attempt's output
        return None
