"""What a running member may read of its flow, and how much of it at once."""

import pytest

from jobpool.core.application.step_results import (
    PAGE_BYTES_MAX,
    PAGE_ROWS_MAX,
    MemberResult,
    WantedResults,
)
from jobpool.errors import UsageError
from jobpool.store.records.flows import MemberOf, StepResult
from jobpool.supervisor.storage.step_results import read_results


class Store:
    """A store in which job 9 is in flow 7, after steps 0 and 2; job 8 after none."""

    def __init__(self, *sizes):
        self.rows = [
            StepResult(n, 0, "k", b"x" * size, "zip") for n, size in enumerate(sizes, 1)
        ]
        self.asked = []

    def flow_of(self, job_id):
        return {9: MemberOf(7, 3, 1, (0, 2)), 8: MemberOf(7, 0, 1, ())}.get(job_id)

    def step_results(self, flow_id, numbers, after_id, limit):
        self.asked.append((flow_id, numbers, after_id, limit))
        return [row for row in self.rows if row.job_id > after_id]


def test_all_steps_before_its_own_or_some_of_them():
    store = Store(1, 1)
    rows = read_results(store, 9, WantedResults(None, 1))
    assert rows == [MemberResult(2, 0, "k", b"x", "zip")]
    read_results(store, 9, WantedResults((2,), 0))
    assert store.asked == [(7, (0, 2), 1, PAGE_ROWS_MAX), (7, (2,), 0, PAGE_ROWS_MAX)]


@pytest.mark.parametrize(
    ("job_id", "numbers", "said"),
    [
        (5, None, "job 5 is in no flow"),
        (5, (0,), "job 5 is in no flow"),
        (9, (0, 1), "job 9 is not after step 1"),
        (9, (3,), "job 9 is not after step 3"),
        (8, (0,), "job 8 is not after step 0"),
    ],
)
def test_others_results_are_kept_from_it(job_id, numbers, said):
    """A hostile child may ask for anything."""
    store = Store(1)
    with pytest.raises(UsageError, match=said):
        read_results(store, job_id, WantedResults(numbers, 0))
    assert store.asked == []


def test_a_job_after_none_has_nothing_to_read():
    store = Store(1)
    assert read_results(store, 8, WantedResults(None, 0)) == []
    assert store.asked == []


def test_a_page_ends_with_the_result_that_fills_it():
    """One that is larger than a page is a page of its own, so that each can be read."""
    half = PAGE_BYTES_MAX // 2
    store = Store(half, half, 1, 3 * PAGE_BYTES_MAX, 1)
    seen = []
    while rows := read_results(store, 9, WantedResults(None, seen[-1] if seen else 0)):
        seen += [row.job_id for row in rows]
        assert sum(len(row.result) for row in rows[:-1]) < PAGE_BYTES_MAX
    assert seen == [1, 2, 3, 4, 5]
