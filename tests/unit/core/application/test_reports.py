"""What an error tracker leaves with a child is bounded, and taken once."""

import pytest

from jobpool.core.application import reports
from jobpool.core.application.reports import Item, Report


@pytest.fixture(autouse=True)
def empty():
    reports.take()
    yield
    reports.take()


def report(size=10):
    return Report("id", of_error=False, items=[Item({"type": "event"}, b"x" * size)])


def test_what_was_handed_over_is_taken_once():
    first, second = report(1), report(2)
    assert reports.hand_over(first)
    assert reports.hand_over(second)
    assert reports.take() == [first, second]
    assert reports.take() == []


def test_there_is_room_for_so_many():
    taken = [reports.hand_over(report()) for _ in range(reports.REPORTS_MAX + 1)]
    assert taken == [True] * reports.REPORTS_MAX + [False]


def test_there_is_room_for_so_many_bytes_and_again_in_the_next_attempt():
    half = report(reports.REPORTS_MAX_BYTES // 2 - 1000)
    assert [reports.hand_over(half) for _ in range(3)] == [True, True, False]
    reports.take()
    assert reports.hand_over(half)


def test_names_and_traces_count_as_well():
    """Else they would be a way around the bound."""
    plain = report().size_bytes
    item = Item({"type": "event", "n" * 100: "v" * 100}, b"x" * 10)
    assert Report("id", of_error=False, items=[item]).size_bytes >= plain + 200
    traced = Report("id", of_error=False, items=report().items, trace={"a": "b" * 99})
    assert traced.size_bytes >= plain + 100
