"""Results in the place of placeholders, before a member's arguments are checked."""

import json

import pytest

from jobpool.core.application.placeholders import placeholder
from jobpool.core.application.step_results import MemberResult
from jobpool.errors import ArgumentsMisfit, CodecMismatch, GiveUp, StoreUnavailable
from jobpool.sandbox.child.arguments import with_results

SECRET = "4711"


class Results:
    """Returns two results at a time, as a supervisor may."""

    def __init__(self, *rows):
        self.rows = [
            MemberResult(n, number, "k", result)
            for n, (number, result) in enumerate(rows, 1)
        ]
        self.asked = []

    def __call__(self, numbers, after_id):
        self.asked.append((tuple(numbers), after_id))
        return [
            row for row in self.rows if row.number in numbers and row.job_id > after_id
        ][:2]


def payload(**arguments):
    return json.dumps(arguments).encode()


def test_results_take_the_place_of_placeholders_whatever_the_pages():
    """A result that is null is stored as none."""
    read = Results((0, b"1"), (1, b"2"), (0, b"3"), (2, None), (0, b'"x"'), (5, b"9"))
    given = payload(
        parts=placeholder(0, many=True),
        one=[placeholder(1, many=False)],
        none=placeholder(2, many=False),
        plain=5,
    )
    filled = json.loads(with_results(given, read))
    assert filled == {"parts": [1, 3, "x"], "one": [2], "none": None, "plain": 5}
    assert read.asked == [((0, 1, 2), after) for after in (0, 2, 4, 5)]


def test_without_placeholders_nothing_is_read():
    read = Results()
    given = payload(a=1)
    assert with_results(given, read) is given
    assert read.asked == []


def test_a_result_that_is_not_there_never_will_be():
    """No attempt more would find it."""
    with pytest.raises(GiveUp, match="arguments are not complete: step 3 "):
        with_results(payload(a=placeholder(3, many=False)), Results())


@pytest.mark.parametrize("many", [False, True])
def test_a_result_that_was_erased_is_not_null(many):
    """Nor is it left out of a list."""
    read = Results((3, b"1"), (3, None))
    read.rows = [row._replace(is_erased=row.result is None) for row in read.rows]
    with pytest.raises(GiveUp, match=r"not complete: the result of job 2 \(k\) was "):
        with_results(payload(a=placeholder(3, many=many)), read)


def test_a_result_that_cannot_be_decoded_is_like_an_argument_that_cannot():
    """Another supervisor, with another version of the application, may know it."""

    def read(_numbers, _after_id):
        raise CodecMismatch("another key") from ValueError(SECRET)

    with pytest.raises(ArgumentsMisfit, match="another key") as caught:
        with_results(payload(a=placeholder(3, many=False)), read)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_store_that_cannot_be_read_is_the_stores_error():
    def read(_numbers, _after_id):
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        with_results(payload(a=placeholder(3, many=False)), read)
