"""One store of each sort for every test: the subject of the conformance suite."""

import inspect
import itertools
import sqlite3
from pathlib import Path

import pytest

from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.opening import open_store
from jobpool.store.postgres import queue_depth
from jobpool.store.sqlite.connection import write_lock
from support.postgres.server import server
from support.store.new_file import place_new_file
from support.store.storing import ManualClock, begin_run

ENGINES = ["sqlite", "postgres", "memory"]


@pytest.fixture(scope="module", autouse=True)
def _no_count_is_slow():
    """Count a full queue each time: after a slow count a guess is used for a while.

    On PostgreSQL that is by the real clock, and on a busy machine any count is slow.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_depth, "_SLOW_S", float("inf"))
        yield


@pytest.fixture
def clock():
    return ManualClock()


def pytest_generate_tests(metafunc):
    """Parametrize by store; a folder named for a database tests that one."""
    if "new_store_url" in metafunc.fixturenames:
        folder = metafunc.definition.path.parent.name
        meant = getattr(metafunc.module, "ENGINES", ENGINES)
        engines = [folder] if folder in ENGINES else meant
        if "new_store_url" in inspect.signature(metafunc.function).parameters:
            # It opens stores by their URLs: no URL leads to one in memory.
            engines = [engine for engine in engines if engine != "memory"]
        metafunc.parametrize("new_store_url", engines, indirect=True)


@pytest.fixture
def new_store_url(request, tmp_path):
    """Make URLs of stores that are as new, all of the same sort."""
    numbers = itertools.count(1)
    if request.param == "memory":
        yield lambda: f"memory:{next(numbers)}"
        return
    if request.param == "sqlite":

        def place():
            place_new_file(path := tmp_path / f"jobs{next(numbers)}.db")
            return f"sqlite:///{path}"

        yield place
        return
    made = []

    def make():
        made.append(server().store_url())
        return made[-1]

    yield make
    for url in made:
        server().drop(url)


@pytest.fixture
def lock_file(database_path):
    return Path(f"{database_path}{write_lock.SUFFIX}")


@pytest.fixture
def store_url(new_store_url, database_path):
    url = new_store_url()
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).rename(database_path)
        return f"sqlite:///{database_path}"
    return url


@pytest.fixture
def open_one(store_url, tmp_path):
    """Open the test's database; one in memory is shared by all stores opened here."""
    if not store_url.startswith("memory:"):
        return lambda **options: open_store(store_url, **options)
    database = MemoryDatabase(store_url.removeprefix("memory:"))
    usual = {"admission": Admission(), "run_root": tmp_path / "jobs.run"}
    return lambda **options: MemoryStore(database, **{**usual, **options})


@pytest.fixture
def store_factory(open_one, clock):
    """Make store objects on one database; each is another supervisor or client."""
    opened = []

    def make(**options):
        store = open_one(clock=clock, **options)
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
    """A direct connection to the database, not the store's."""
    connection = sqlite3.connect(database_path, isolation_level=None)
    yield connection
    connection.close()
