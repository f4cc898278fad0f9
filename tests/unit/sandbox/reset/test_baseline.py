"""A handler's changes are noticed even if they look the same."""

import time

import pytest

from jobpool.sandbox.reset import baseline


@pytest.fixture
def zone(monkeypatch):
    """Make a time zone the process's own for a while."""

    def be(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield be
    monkeypatch.undo()
    time.tzset()


def test_time_zones_of_one_name_are_told_apart(zone):
    """Mexico's and China's are both CST, fourteen hours apart."""
    zone("CST6")
    here, names = baseline._timezone(), time.tzname
    zone("CST-8")
    assert time.tzname == names
    assert baseline._timezone() != here
