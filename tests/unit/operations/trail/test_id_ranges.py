"""Ids as a short text."""

from hypothesis import given
from hypothesis import strategies as st

from jobpool.operations.trail.id_ranges import RANGES_MAX, IdRanges, names


def text_of(*batches):
    ranges = IdRanges()
    for batch in batches:
        ranges.add(batch)
    return str(ranges)


def test_neighbours_are_one_range():
    """Over batches as well, whatever the order within one."""
    assert text_of([3, 1, 2], [4, 7], [8]) == "1-4,7-8"
    assert text_of([5]) == "5"
    assert text_of([5, 5], [5]) == "5"
    assert text_of([10], [1]) == "10,1"
    assert text_of() == ""


def test_the_text_is_bounded():
    """What does not fit is in one wide range, and says so."""
    ids = range(2, 4000, 2)
    text = text_of(ids[:1000], ids[1000:])
    assert text.count(",") == RANGES_MAX
    assert text.endswith(f",~{2 * RANGES_MAX + 2}-3998")


@given(
    st.lists(st.lists(st.integers(1, 400), max_size=150), max_size=4),
    st.integers(1, 400),
)
def test_a_text_never_denies_an_id(batches, job_id):
    """It says yes or "maybe" to each that was added, and no or "maybe" to others."""
    said = names(text_of(*batches), job_id)
    assert said is not (job_id not in {one for batch in batches for one in batch})


def test_what_is_no_such_text_names_nothing():
    """Another program may have written it."""
    for text in ("", "x", "1-x", "-5", "~", "٣"):
        assert names(text, 3) is False
