"""Waiting for a store at the start, with a clock that the test moves."""

import pytest

from jobpool.core.events.supervisor import StoreBack, StoreTrouble
from jobpool.errors import StoreRefused, StoreUnavailable
from jobpool.supervisor.storage import open_patiently


class Moments:
    """A clock that advances by the waits."""

    def __init__(self):
        self.now_s = 100.0

    def utc_ms(self):
        return round(self.now_s * 1000)

    def monotonic_s(self):
        return self.now_s

    def wait(self, pause_s):
        self.now_s += pause_s


class Said(list):
    """An observer that records."""

    observe = list.append


@pytest.fixture
def clock():
    return Moments()


@pytest.fixture
def said():
    return Said()


def open_after(failures, clock, said):
    """Open a store that fails with these errors first."""

    def opener():
        if failures:
            raise failures.pop(0)
        return "the store"

    return open_patiently.open_patiently(opener, said, clock, wait=clock.wait)


def test_an_available_store_is_opened_without_a_message(clock, said):
    """Nothing is logged when nothing is wrong."""
    assert open_after([], clock, said) == "the store"
    assert said == []


def test_a_failure_to_open_is_reported_once_and_so_is_its_end(clock, said):
    """Three failures are one line, and the recovery says how long it took."""
    failures = [StoreUnavailable("away")] * 3
    assert open_after(failures, clock, said) == "the store"
    trouble, back = said
    assert (type(trouble), trouble.error) == (StoreTrouble, "away")
    assert (type(back), back.away_s) == (StoreBack, clock.now_s - 100.0)


def test_waiting_for_a_store_ends(clock, said):
    """After a minute the start fails with an error."""
    with pytest.raises(StoreUnavailable):
        open_after([StoreUnavailable("away")] * 1000, clock, said)
    waited_s = clock.now_s - 100.0
    assert (
        open_patiently.AWAIT_S
        <= waited_s
        <= open_patiently.AWAIT_S + open_patiently.LAST_S
    )


def test_a_refusal_is_not_waited_for(clock, said):
    """What time cannot repair ends the start at once."""
    with pytest.raises(StoreRefused):
        open_after([StoreRefused("wrong password")], clock, said)
    assert (clock.now_s, said) == (100.0, [])
