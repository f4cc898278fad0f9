"""Usage: every ended attempt is counted once, where it ended."""

from __future__ import annotations

import pytest

from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.usage.sketch import Measure, buckets_of
from jobpool.store.records.reading import SketchRow
from jobpool.supervisor.machine.state.usage import Usage

MIB = 2**20
ALL = 10_000


def found(usage: Usage, measure: Measure) -> list[tuple[int, int, int]]:
    """Take everything; return bucket, attempts and censored ones of one measure."""
    return sorted(
        (row.bucket, row.attempts, row.censored)
        for row in usage.take(ALL)
        if row.measure is measure
    )


def test_many_successes_are_counted_once_each() -> None:
    """However many wait, and whenever they are taken."""
    usage = Usage()
    rows: list[SketchRow] = []
    for each in range(700):
        usage.succeeded("work", "cpu", [each * MIB + 1], [each / 1000])
        if each % 300 == 0:
            rows += usage.take(ALL)
    rows += usage.take(ALL)
    for measure in Measure:
        assert sum(row.attempts for row in rows if row.measure is measure) == 700
    assert not any(row.censored for row in rows)
    assert usage.take(ALL) == []


@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_before_its_time_is_censored(outcome: Outcome) -> None:
    """Only a return or an exception is an end by itself; a lost one is unknown."""
    usage = Usage()
    evidence = Evidence(peak_rss_bytes=600 * MIB, duration_s=2.0)
    usage.ended("work", "cpu", outcome, evidence, 512 * MIB)
    if outcome is Outcome.LOST:
        assert usage.take(ALL) == []
        return
    by_itself = outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
    at_bytes = 512 * MIB if outcome is Outcome.OUT_OF_MEMORY else 600 * MIB
    rows = {row.measure: row for row in usage.take(ALL)}
    assert rows[Measure.MEMORY].bucket == buckets_of([at_bytes])[0]
    assert rows[Measure.DURATION].bucket == buckets_of([2000.0])[0]
    assert {row.censored for row in rows.values()} == {0 if by_itself else 1}
    assert {row.attempts for row in rows.values()} == {1}


def test_what_was_not_measured_is_not_counted() -> None:
    usage = Usage()
    usage.ended("work", "cpu", Outcome.CRASHED, Evidence(), 512 * MIB)
    assert usage.take(ALL) == []


def test_kinds_and_pools_are_counted_apart() -> None:
    usage = Usage()
    for kind, pool in (("a", "cpu"), ("b", "cpu"), ("a", "io")):
        usage.succeeded(kind, pool, [MIB], [1.0])
    places = [(row.kind, row.pool, row.measure.value) for row in usage.take(ALL)]
    assert len(places) == len(set(places)) == 6


def test_counts_that_could_not_be_written_are_added_to_later_ones() -> None:
    usage = Usage()
    evidence = Evidence(peak_rss_bytes=MIB, duration_s=1.0)
    usage.ended("work", "cpu", Outcome.TIMED_OUT, evidence, 2 * MIB)
    taken = usage.take(ALL)
    usage.succeeded("work", "cpu", [MIB], [1.0])
    usage.put_back(taken)
    assert found(usage, Measure.MEMORY) == [(buckets_of([MIB])[0], 2, 1)]


def test_no_more_rows_are_taken_than_asked_for() -> None:
    usage = Usage()
    for kind in range(10):
        usage.succeeded(f"kind.{kind}", "cpu", [MIB], [1.0])
    taken = usage.take(7)
    assert len(taken) == 7
    assert len(usage.take(ALL)) == 13
