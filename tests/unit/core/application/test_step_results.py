"""Results of a flow's members: read page by page, and as often as one likes."""

from jobpool.core.application.step_results import Member, MemberResult, StepResults

ROWS = [
    MemberResult(n, n % 2, "odd" if n % 2 else "even", b"%d" % n) for n in range(3, 10)
]


class Pages:
    """Returns two results at a time, and counts its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, after_id):
        self.calls.append(after_id)
        return [row for row in ROWS if row.job_id > after_id][:2]


def value(row):
    return row.member, row.result


def test_they_come_in_order_whatever_the_pages_and_again_from_the_beginning():
    results = StepResults(Pages(), value)
    expected = [(Member(row.job_id, row.kind), row.result) for row in ROWS]
    assert list(results) == expected
    assert list(results) == expected


def test_a_page_is_read_when_it_is_needed():
    pages = Pages()
    loop = iter(StepResults(pages, value))
    assert pages.calls == []
    assert [next(loop)[1], next(loop)[1]] == [b"3", b"4"]
    assert pages.calls == [0]
    next(loop)
    assert pages.calls == [0, 4]


def test_those_of_other_kinds_are_passed_over():
    """Also where a page has none of them."""
    results = StepResults(Pages(), lambda row: row.job_id, frozenset({"odd"}))
    assert list(results) == [3, 5, 7, 9]
    assert list(StepResults(Pages(), value, frozenset({"other"}))) == []


def test_no_results_are_no_loop():
    assert list(StepResults(lambda _after: [], value)) == []
