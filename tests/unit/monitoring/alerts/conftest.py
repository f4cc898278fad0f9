"""A store in memory whose clock a test moves, and a watcher over it."""

import pytest

from jobpool.core.config.settings import AlertSettings
from jobpool.core.rules.admission import Admission
from jobpool.monitoring.alerts.receivers.receiver import NotTaken
from jobpool.monitoring.alerts.watcher import Watcher
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from support.store.storing import ManualClock, begin_run, kind_record


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def database(tmp_path):
    return MemoryDatabase(str(tmp_path))


@pytest.fixture
def store(tmp_path, clock, database):
    store = MemoryStore(
        database,
        clock=clock,
        admission=Admission(),
        run_root=tmp_path / "jobs.run",
    )
    begin_run(store, kinds=[kind_record()], pools={"cpu": "4"})
    yield store
    store.close()


class Ear:
    """A receiver that notes what it is told; or refuses it."""

    place = "an ear"

    def __init__(self):
        self.heard = []
        self.refuses = ""

    def send(self, name, body):
        if self.refuses:
            raise NotTaken(self.refuses)
        self.heard.append((name, body))
        return "heard"

    @property
    def names(self):
        return [name for name, _ in self.heard]


@pytest.fixture
def ear():
    return Ear()


@pytest.fixture
def events():
    return []


@pytest.fixture
def watcher(store, clock, ear, events):
    """Return a watcher by its rules; its steps are the test's."""

    def make(opener=lambda: store, **rules):
        settings = AlertSettings(webhook="https://x.example", **rules)
        return Watcher(
            opener,
            settings,
            {"webhook": ear},
            events.append,
            clock=clock,
            queue=store.url,
        )

    return make
