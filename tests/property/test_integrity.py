"""Rows of jobs: whatever a row holds, the repaired row is valid."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.statements.integrity import (
    JOB,
    KIND,
    RowChecker,
    is_valid,
    repair_job,
)
from jobpool.store.statements.rows import LeaseRow

NOW_MS = 1_800_000_000_000
CHECKER = RowChecker(tuple(JOB))
HONEST: dict[str, Any] = {
    **dict.fromkeys(JOB),
    **dict.fromkeys(("attempt", "reset_attempt", "failures", "crashes"), 0),
    **dict.fromkeys(("interruptions", "recoveries", "snoozes", "priority"), 0),
    "id": 7,
    "kind": "shop.thumbnail",
    "pool": "cpu",
    "state": "runnable",
    "created_at_ms": NOW_MS,
    "run_at_ms": NOW_MS,
    "cancel_requested": 0,
}
ANYTHING = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=9),
    st.binary(max_size=9),
    st.sampled_from([*JobState]),
    st.sampled_from([*Outcome]),
    st.just(NOW_MS),
)


def is_sound(fields: dict[str, Any]) -> bool:
    """Say whether a row is valid."""
    return not CHECKER.damaged([tuple(fields[name] for name in JOB)])


def test_a_valid_row_is_left_alone() -> None:
    """No field of it is changed."""
    assert is_sound(HONEST)
    mended = repair_job(HONEST, NOW_MS)
    assert (mended.wrong, mended.fields) == ([], HONEST)


@given(st.dictionaries(st.sampled_from([*JOB]), ANYTHING), st.booleans())
def test_a_repaired_row_is_valid(spoilt: dict[str, Any], held: bool) -> None:
    """However many fields were invalid; valid ones stay as they are."""
    found = HONEST | spoilt | {"id": 7}
    mended = repair_job(found, NOW_MS, held=held)
    assert is_sound(mended.fields)
    assert bool(mended.wrong) is not is_sound(found)
    if mended.is_set_aside:
        assert mended.fields["state"] is JobState.DEAD
        assert all(name in mended.fields["reason"] for name in mended.wrong)
    again = repair_job(mended.fields, NOW_MS)
    assert again.wrong == []


@given(st.sampled_from([*JOB]), ANYTHING)
def test_a_finished_job_keeps_its_end_when_it_is_repaired(
    name: str, value: object
) -> None:
    """Its success is not lost over a wrong figure; only without a state is it dead."""
    ended = HONEST | {"state": "succeeded", "outcome": "succeeded", "attempt": 1}
    ended |= {"finished_at_ms": NOW_MS}
    mended = repair_job(ended | {name: value, "id": 7}, NOW_MS)
    if name != "state":
        assert mended.fields["state"] == JobState.SUCCEEDED
    if mended.wrong == ["state"]:
        assert mended.fields["state"] in FINISHED


def test_a_lease_needs_nothing_that_a_valid_row_lacks() -> None:
    """Otherwise a row would be refused at each lease and never found damaged."""
    fields = {**LeaseRow.__annotations__}
    del fields["payload"]
    for name in ("tick", "throttled", "run_at_ms", "step", "trace"):
        assert fields.pop(name) == "Any"  # whatever it is, the job is leased without
    assert fields.keys() <= JOB.keys()
    hints = {field.name: field.type for field in msgspec.structs.fields(LeaseRow)}
    assert all(hints[name] == JOB[name] for name in fields)


@pytest.mark.parametrize(
    ("schema", "is_readable"),
    [
        ('{"type": "object"}', True),
        ("", False),
        ("[1]", False),
        ('{"a":' * 100_000, False),
        ("text", False),
    ],
    ids=["object", "empty", "array", "deep", "text"],
)
def test_a_kind_is_published_with_a_valid_schema(
    schema: str, is_readable: bool
) -> None:
    """An invalid schema would stop every check of arguments."""
    assert is_valid({"schema": schema}, KIND) is is_readable
