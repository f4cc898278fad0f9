"""A store in memory, with one supervisor that has published a kind."""

import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from support.store.storing import begin_run, kind_record


@pytest.fixture
def store(tmp_path):
    store = MemoryStore(
        MemoryDatabase(str(tmp_path)),
        clock=SystemClock(),
        admission=Admission(),
        run_root=tmp_path / "jobs.run",
    )
    begin_run(store, kinds=[kind_record()], pools={"cpu": "4"})
    yield store
    store.close()
