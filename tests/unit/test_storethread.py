"""The store thread's inbox: what is merged, and what may wait for company."""

from __future__ import annotations

from jobpool.core.job import JobState, Progress, Settlement
from jobpool.supervisor.storethread import FULL_BATCH, Inbox, newest_beats


def test_beats_that_pile_up_are_merged() -> None:
    """While the store is away each lease keeps one beat, with its newest values."""
    beats = [
        Progress(1, 10, b"0.1", b"a"),
        Progress(2, 20, b"0.5", None),
        Progress(1, 10, b"0.2", None),
        Progress(1, 10, None, b"b"),
    ]
    assert newest_beats(beats) == [
        Progress(1, 10, b"0.2", b"b"),
        Progress(2, 20, b"0.5", None),
    ]


def settlements(count: int) -> list[Settlement]:
    """Return settlements of so many jobs."""
    return [Settlement(id=n, token=n, state=JobState.SUCCEEDED) for n in range(count)]


def test_only_settlements_wait_for_company() -> None:
    """Somebody waits for leases, answers and chores; a full batch is large enough."""
    assert Inbox(settlements=settlements(3)).can_wait
    assert not Inbox(settlements=settlements(FULL_BATCH)).can_wait
    assert not Inbox(settlements=settlements(3), wanted={"cpu": 1}).can_wait
    assert not Inbox(settlements=settlements(3), chores=[lambda _store: ()]).can_wait


def test_an_empty_inbox_is_false() -> None:
    """The thread sleeps only when nothing at all was left."""
    assert not Inbox()
    assert Inbox(wanted={})
    assert Inbox(starts=[(1, 1, "cpu/0")])
