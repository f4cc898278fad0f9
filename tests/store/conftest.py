"""One store of each sort for every test: the conformance suite's subject."""

import sqlite3

import pytest

from jobpool.store import open_store
from storing import ManualClock, begin_run


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["sqlite"])
def store_url(request, tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def store_factory(store_url, clock):
    """Make store objects on one database; each is another supervisor or client."""
    opened = []

    def make(**options):
        store = open_store(store_url, clock=clock, **options)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(store_factory):
    """A store with one supervisor's run in it."""
    store = store_factory()
    begin_run(store)
    return store


@pytest.fixture
def database_path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def by_hand(database_path):
    """A connection such as a curious person's: not the store's."""
    connection = sqlite3.connect(database_path, isolation_level=None)
    yield connection
    connection.close()
