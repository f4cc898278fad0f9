"""Every database beside the store in memory: the same walk and the same answers."""

from pathlib import Path

import pytest

from jobpool.core.rules.admission import Admission
from jobpool.store.memory.database import MemoryDatabase
from jobpool.store.memory.store import MemoryStore
from jobpool.store.opening import open_store
from support.store.schedule_walk import ScheduleWalk
from support.store.twins import Names, Twins
from support.store.walk import Walk

STEPS = 80


@pytest.mark.parametrize(
    ("walk", "seed"), [*((Walk, seed) for seed in range(5)), (ScheduleWalk, 5)]
)
def test_a_database_answers_as_a_store_in_memory_does(new_store_url, clock, walk, seed):
    """Whatever was done before: every column of every statement that writes it."""
    left = MemoryStore(
        MemoryDatabase("walk"),
        clock=clock,
        admission=Admission(depth_max=60),
        run_root=Path("/nonexistent"),
    )
    right = open_store(new_store_url(), clock=clock, admission=Admission(depth_max=60))
    store = Twins(left, right, Names())
    try:
        walk(store, clock, seed).go(STEPS)
    finally:
        store.close()
