"""Entering a run: a supervisor that cannot is ended, and says why."""

from __future__ import annotations

from typing import Any

import pytest

from jobpool.errors import JobpoolBug, StoreRefused, StoreUnavailable, UsageError
from jobpool.supervisor.maintenance.run_entry import NO_THREAD, until_taken
from jobpool.supervisor.storage.inbox import Chore

STORE: Any = None


def entering(error: Exception, left: list[Chore]) -> Chore:
    """Return a chore that fails, left again for as long as it is wanted."""

    def enter(_store: Any) -> Any:
        raise error

    return until_taken(enter, left.append, lambda: True)


@pytest.mark.parametrize("error", [ValueError("x"), JobpoolBug("x"), UsageError("x")])
def test_who_cannot_enter_is_ended_with_a_word(error: Exception) -> None:
    """An alarm alone would leave it waiting for ever."""
    left: list[Chore] = []
    with pytest.raises(StoreRefused, match="could not enter its run") as told:
        entering(error, left)(STORE)
    assert told.value.__cause__ is error
    assert left == []


def test_a_store_that_is_away_is_asked_again() -> None:
    """That is an error of its own."""
    left: list[Chore] = []
    chore = entering(StoreUnavailable("away"), left)
    with pytest.raises(StoreUnavailable):
        chore(STORE)
    assert left == [chore]


def test_a_machine_without_a_thread_to_spare_is_asked_again() -> None:
    """It may have one a moment later; the error says what is short."""
    left: list[Chore] = []
    chore = entering(RuntimeError(NO_THREAD), left)
    with pytest.raises(StoreUnavailable, match="another thread"):
        chore(STORE)
    assert left == [chore]
