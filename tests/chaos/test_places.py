"""The nemesis never waits without a bound."""

import contextlib

import pytest

from chaos.places import HARMED, PLACES, LockedOut


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    """Make an unused store of either sort."""
    made = PLACES[request.param](tmp_path, is_alone=False)
    yield made
    made.close()


def test_the_nemesis_gives_up_on_a_lock_that_is_held(place):
    """A lock may be held by a supervisor that the nemesis itself has stopped."""
    table = f"{place.schema}.jobs" if place.shared else "jobpool_jobs"
    with contextlib.closing(place.observe()) as stopped:
        stopped.execute("BEGIN")
        stopped.execute(f"UPDATE {table} SET kind = kind")
        with pytest.raises(LockedOut), place.locked(0.1):
            pass
        stopped.execute("ROLLBACK")
    with place.locked(0.1), contextlib.closing(place.observe()) as other:
        if place.shared:
            other.execute("SET lock_timeout = '100ms'")
        with pytest.raises(HARMED):
            other.execute(f"UPDATE {table} SET kind = kind")
