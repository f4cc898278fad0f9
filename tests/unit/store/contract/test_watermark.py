"""What shows that a store went back in time, and what does not."""

import pytest

from jobpool.errors import StoreRefused, StoreWentBack
from jobpool.store.contract.watermark import RunPosition, Watermark

SEEN = RunPosition(renewals=50, token=70, restores=2)


@pytest.fixture
def known():
    mark = Watermark("run-1")
    mark.mark().compare(SEEN, "there")
    mark.renewals, mark.token = 50, 70
    return mark


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (None, "does not know this run"),
        (SEEN._replace(restores=3), "was restored from a backup"),
        (SEEN._replace(restores=1), "was restored from a backup"),
        (
            SEEN._replace(renewals=47),
            "the newest 3 of this run's renewals",
        ),
        (SEEN._replace(token=69), "does not know leases any more that this run got"),
    ],
)
def test_a_store_that_holds_less_went_back(known, found, what):
    """The error says what is missing, and what to do."""
    with pytest.raises(StoreWentBack, match=what) as raised:
        known.mark().compare(found, "sqlite:///jobs.db")
    assert isinstance(raised.value, StoreRefused)
    assert "sqlite:///jobs.db" in str(raised.value)
    assert "jobpool restored" in str(raised.value)


@pytest.mark.parametrize(
    "found", [SEEN, SEEN._replace(renewals=60), SEEN._replace(token=10**9)]
)
def test_a_store_that_holds_as_much_or_more_did_not(known, found):
    """An answer may have been lost, and others lease too."""
    known.mark().compare(found, "there")


def test_restores_count_from_the_first_look():
    """A store may have been restored before."""
    mark = Watermark("run-1")
    assert not mark.is_set
    mark.mark().compare(SEEN, "there")
    assert mark.is_set


def test_what_was_learned_after_the_question_is_not_missing_in_the_answer(known):
    """While one thread renews another leases; an answer may be older."""
    asked = known.mark()
    known.renewals, known.token = 60, 80
    asked.compare(SEEN, "there")
    with pytest.raises(StoreWentBack):
        known.mark().compare(SEEN, "there")
