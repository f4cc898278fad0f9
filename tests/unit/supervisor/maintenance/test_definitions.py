"""What is wrong with the definitions of quotas is reported, once."""

from __future__ import annotations

import pytest

from jobpool.core.events.flow import QuotasHeldBack
from jobpool.supervisor.maintenance.definitions import Definitions
from support.store.storing import ManualClock


class Store:
    """A store with quotas."""

    def __init__(self, **differing):
        self.differing = differing

    def differing_quotas(self):
        return self.differing


@pytest.fixture
def definitions():
    return Definitions(ManualClock())


def test_kinds_that_have_to_wait_for_older_supervisors_are_named_once(definitions):
    """Again if they are others, or if they began meanwhile."""
    said = definitions.held_back(("a",), "host b is old")
    assert [(type(one), one.kinds, one.reason) for one in said] == [
        (QuotasHeldBack, ("a",), "host b is old")
    ]
    assert definitions.held_back(("a",), "host b is old") == ()
    assert len(definitions.held_back(("a", "b"), "host b is old")) == 1
    assert definitions.held_back(("a", "b"), "") == ()
    assert len(definitions.held_back(("a", "b"), "host b is old")) == 1


def test_a_quota_that_differs_is_reported_once(definitions):
    """Again when they say something else."""
    store = Store(stripe="a says 1/s, b says 2/s")
    (said,) = definitions.compare(store)
    assert (said.quota, said.reason) == ("stripe", "a says 1/s, b says 2/s")
    assert definitions.compare(store) == ()
    store.differing["stripe"] = "a says 1/s, b says 3/s"
    assert len(definitions.compare(store)) == 1
