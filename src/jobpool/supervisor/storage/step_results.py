"""Reads for a running member of a flow what those before it have returned."""

from __future__ import annotations

from jobpool.core.application.step_results import (
    PAGE_BYTES_MAX,
    PAGE_ROWS_MAX,
    MemberResult,
    WantedResults,
)
from jobpool.errors import UsageError
from jobpool.store.protocol import Store


def read_results(
    store: Store, job_id: int, wanted: WantedResults
) -> list[MemberResult]:
    """Return a page of results: some, unless there are none left.

    Args:
        store: has them.
        job_id: the member, which may only read those of the steps before its own.
        wanted: which of them.

    Raises:
        UsageError: the job is in no flow, or asks for another step's.
        StoreError: they could not be read.
    """
    place = store.flow_of(job_id)
    if place is None:
        raise UsageError(
            f"job {job_id} is in no flow, so there are no steps before it with results"
        )
    numbers = place.before if wanted.numbers is None else wanted.numbers
    if others := set(numbers).difference(place.before):
        raise UsageError(
            f"job {job_id} is not after step {min(others)} of its flow, and cannot "
            "read its results"
        )
    if not numbers:
        return []
    rows = store.step_results(
        place.flow, numbers, after_id=wanted.after_id, limit=PAGE_ROWS_MAX
    )
    page: list[MemberResult] = []
    room_bytes = PAGE_BYTES_MAX
    for row in rows:
        page.append(MemberResult(*row))
        room_bytes -= len(row.result or b"")
        if room_bytes <= 0:
            break
    return page
